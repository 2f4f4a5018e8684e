"""What a remedy would bring: the recording's own hot ops made again and timed as they are and as the remedy runs them."""
