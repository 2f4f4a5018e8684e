"""Which observations make a guard verdict?"""
