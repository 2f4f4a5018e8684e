"""`--price-per-hour`: what the machine costs, from the command line or GOBRRR_PRICE_PER_HOUR."""

from __future__ import annotations

import argparse
import os

from gobrrr.cli import numbers
from gobrrr.errors import GobrrrError

VARIABLE = "GOBRRR_PRICE_PER_HOUR"


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--price-per-hour", type=numbers.more_than_zero, metavar="X",
        help=f"also say what it costs in money, at X per hour (or {VARIABLE})",
    )  # fmt: skip


def asked(args: argparse.Namespace) -> float | None:
    """The price, None where there is none. Raises GobrrrError where the variable holds no price."""
    if args.price_per_hour is not None:
        return float(args.price_per_hour)
    text = os.environ.get(VARIABLE, "").strip()
    try:
        return numbers.more_than_zero(text) if text else None
    except argparse.ArgumentTypeError as error:
        raise GobrrrError(f"{VARIABLE}: {error}", f"{VARIABLE}=2.50, or unset it") from None
