"""Numbers of the command line: what argparse takes for one, and what it says of the rest."""

from __future__ import annotations

import argparse
import math


def more_than_zero(text: str) -> float:
    """A number above 0, and no endless one."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number") from None
    if not (0 < value and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text[:40]}")
    return value


def at_least_one(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text[:40]}")
    return value
