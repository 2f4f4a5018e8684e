"""What a remedy would bring: the recording's own hot ops, timed as they are and as the remedy runs them."""
