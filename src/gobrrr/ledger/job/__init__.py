"""Which rank waits for whom, and how fast are the links?"""
