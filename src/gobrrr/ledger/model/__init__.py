"""Which parts make a Ledger: accounts, op tables, the device's part?"""

WAYS = ("op", "shape", "line", "module")
"""Groupings of a table of ops: words of the command line too, which needs no model for them."""
