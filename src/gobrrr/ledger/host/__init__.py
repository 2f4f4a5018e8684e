"""Where was the host's time spent: which op, which line of the user's?"""
