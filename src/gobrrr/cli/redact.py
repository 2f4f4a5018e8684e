"""`--redact PATTERN`: what its user wants to keep to himself."""

from __future__ import annotations

import argparse
import re


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option, which may be given more than once."""
    parser.add_argument(
        "--redact", type=_pattern, action="append", default=[], metavar="PATTERN",
        help="mask what this regular expression finds, beside what looks like a key or a password anyway",
    )  # fmt: skip


def _pattern(text: str) -> re.Pattern[str]:
    try:
        found = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    if found.search(""):
        raise argparse.ArgumentTypeError(f"{text!r} finds the empty string everywhere")
    return found
