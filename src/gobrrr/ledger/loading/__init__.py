"""How long does the loader take, and how many workers would it need?"""
