"""How much do derivatives cost?"""
