"""What does a program do, seen by samples from outside, and what stands out?"""
