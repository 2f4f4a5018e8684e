"""How is a program started and watched from its first line?"""
