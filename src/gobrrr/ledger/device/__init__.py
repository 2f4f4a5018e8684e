"""When did the accelerator work, and why was it idle?"""
