"""How is a trace that another tool wrote read, as hostile data?"""
