"""Which edits of the user's source stand for a remedy, and where is their place?"""
