"""How is a run or a tuning shown while it goes on?"""
