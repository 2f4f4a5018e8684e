"""How much do smaller models bring?"""
