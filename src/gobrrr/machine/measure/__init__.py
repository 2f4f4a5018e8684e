"""How fast is this computer, measured here?"""
