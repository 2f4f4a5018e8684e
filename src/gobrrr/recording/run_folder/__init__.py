"""How is the folder of a live run read back?"""
