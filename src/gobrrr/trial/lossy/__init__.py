"""Which edits that change the numbers are fastest while the user's gate holds?"""
