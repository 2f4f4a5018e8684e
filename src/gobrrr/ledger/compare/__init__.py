"""Which differences between two recordings of one program are real?"""
