"""How much do the host and torch itself cost?"""
