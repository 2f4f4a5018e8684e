"""Which slow ways of writing something does the field know, and where does the program use one?"""
