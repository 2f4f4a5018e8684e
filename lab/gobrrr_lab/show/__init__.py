"""How are the lab's results shown?"""
