"""Which remedies change how a layer computes?"""
