"""How do number formats differ in range and cost?"""
