"""Where may a trial write, and how is that enforced?"""
