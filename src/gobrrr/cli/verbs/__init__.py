"""How does each verb of the command line work?"""
