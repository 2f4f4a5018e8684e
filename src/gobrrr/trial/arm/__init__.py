"""How is one arm, the user's program, started, stopped and timed in turn?"""
