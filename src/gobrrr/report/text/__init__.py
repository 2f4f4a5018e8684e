"""How is everything shown in a terminal, once and while it goes on?"""
