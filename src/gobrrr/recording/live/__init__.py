"""How is a run read while it is still running?"""
