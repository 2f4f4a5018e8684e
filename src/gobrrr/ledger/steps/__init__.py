"""How long is a step, and which steps say so?"""
