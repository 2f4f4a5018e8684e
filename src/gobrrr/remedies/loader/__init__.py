"""Which remedies make the loader faster?"""
