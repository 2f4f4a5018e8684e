"""How is a step drawn along the line of time?"""
