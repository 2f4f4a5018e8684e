"""Models with real values and their evaluations: does an edit that changes the numbers keep what they are for?"""
