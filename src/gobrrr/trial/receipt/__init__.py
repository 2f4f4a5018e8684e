"""How is a tuning kept, to be believed and repeated?"""
