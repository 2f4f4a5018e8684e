"""Which remedies compile the model?"""
