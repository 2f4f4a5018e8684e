"""How is a Finding made, and which helpers do rules share?"""
