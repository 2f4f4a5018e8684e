"""Which kind of work is a program in, seen by samples from outside, and what stands out?"""
