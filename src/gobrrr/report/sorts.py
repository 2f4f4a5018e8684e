"""What a table of ops can be grouped and sorted by: words of the command line, which needs no renderer for them."""

from __future__ import annotations

WAYS = ("op", "shape", "line", "module")
SORTS = ("self", "total", "average", "calls", "device", "rate", "peak", "name")
