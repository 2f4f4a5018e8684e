"""Which edit of the program does an arm run with?"""
