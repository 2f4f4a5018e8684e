"""How does the guard watch a running program?"""
