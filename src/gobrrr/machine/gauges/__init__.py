"""What do the computer's own gauges say while a program runs: use, power, clocks and memory of its devices?"""
