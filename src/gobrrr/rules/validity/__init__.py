"""Can this measurement be trusted?"""
