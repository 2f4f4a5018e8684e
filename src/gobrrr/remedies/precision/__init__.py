"""Which remedies compute in another number format?"""
