"""How much do many devices cost, in time and energy?"""
