"""How does the system describe this computer, and which of it moves the ceilings?"""
