"""How long did each op take, and how long must it take at least?"""
