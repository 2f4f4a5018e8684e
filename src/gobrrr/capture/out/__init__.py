"""How is what was seen written, so that a kill loses only the tail?"""
