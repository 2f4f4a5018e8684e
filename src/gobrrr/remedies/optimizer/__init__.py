"""Which remedies act on the optimizer and gradients?"""
