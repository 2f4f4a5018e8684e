"""Which remedies trade memory for time?"""
