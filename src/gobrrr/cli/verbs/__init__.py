"""How does each verb work that starts a program, or watches one?"""
