"""Columns that a table of ops can be sorted by: words of the command line, which needs no renderer for them."""

from __future__ import annotations

SORTS = ("self", "total", "average", "calls", "device", "rate", "peak", "name")
