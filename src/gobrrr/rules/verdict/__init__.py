"""How do ledger and findings become a report, its verdict and the sentence?"""
