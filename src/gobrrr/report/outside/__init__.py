"""How does gobrrr tell what was seen of a program from outside?"""
