"""When is a program watched closely, and when is it left alone?"""
