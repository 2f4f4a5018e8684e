"""How is a machine shown?"""
