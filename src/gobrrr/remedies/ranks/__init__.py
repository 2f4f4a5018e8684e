"""Which remedies act on how ranks share gradients and weights?"""
