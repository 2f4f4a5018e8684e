"""Which candidates are tried, in which order, and what is kept?"""
