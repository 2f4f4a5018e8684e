"""Which facts do all forms of a report share?"""
