"""One experiment in each file: its claim with the source, what the ceilings predict, and how to measure it."""
