"""How are sequences packed, bucketed and masked?"""
