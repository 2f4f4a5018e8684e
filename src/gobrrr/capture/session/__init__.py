"""When is a program watched closely, when is it left alone, and how is what was seen written?"""
