"""How do we ask the operating system for files, processes and descriptors, and show text safely?"""
