"""How fast are matrix products?"""
