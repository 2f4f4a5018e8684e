"""How sure are paired measurements, and when are they enough?"""
