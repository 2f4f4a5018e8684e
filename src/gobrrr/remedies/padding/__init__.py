"""Which remedies spare work on padding?"""
