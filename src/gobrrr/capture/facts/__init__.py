"""Which settings and objects does the program use?"""
