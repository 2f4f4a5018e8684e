"""Which remedies compute or decode samples once?"""
