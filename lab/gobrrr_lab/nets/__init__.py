"""Which small nets do experiments share?"""
