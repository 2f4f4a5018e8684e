"""Which tensors hold the memory of a step?"""
