"""How much do fusion and better kernels bring?"""
