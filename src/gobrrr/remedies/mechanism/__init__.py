"""Where do remedies act, how are they undone, how are they written as a patch?"""
