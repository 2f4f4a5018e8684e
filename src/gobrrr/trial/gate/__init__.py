"""Does the user's own measure of quality stay within what is allowed?"""
