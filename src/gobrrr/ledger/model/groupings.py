"""Groupings of a table of ops: words of the command line too, which needs no model for them."""

WAYS = ("op", "shape", "line", "module")
