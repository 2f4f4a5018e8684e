"""What a table of ops can be grouped by: words of the command line too, which needs no model for them."""

WAYS = ("op", "shape", "line", "module")
