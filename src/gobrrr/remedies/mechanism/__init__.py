"""Where do remedies act, and how are they undone?"""
