"""Is arithmetic done that could be faster or spared?"""
