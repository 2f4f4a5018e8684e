"""Which remedies are a setting of the process?"""
