"""How are a few steps looked at closely?"""
