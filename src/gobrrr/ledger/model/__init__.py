"""Which parts make a Ledger: accounts, op tables, the device's part?"""
