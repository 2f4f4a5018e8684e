"""How does each verb work that starts no program: what reads a recording, a trace or gobrrr itself?"""
