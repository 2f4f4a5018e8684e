"""How much does feeding the model cost?"""
