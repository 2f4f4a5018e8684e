"""Which bytes say whether a sample, or what computes it, is the same?"""
