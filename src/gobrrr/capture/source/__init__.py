"""Where in the user's source is something written?"""
