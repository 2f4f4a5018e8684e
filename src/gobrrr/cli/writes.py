"""Where trials may write: the options of every verb that starts the program in trials."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.trial.sandbox.limits import Limits


def add_options(parser: argparse.ArgumentParser) -> None:
    """--allow-writes and --unprotected."""
    parser.add_argument(
        "--allow-writes", dest="allowed", action="append", type=Path, default=[], metavar="DIR",
        help="let the program write below DIR in trials; may be given again (else: into its own copy alone)",
    )  # fmt: skip
    parser.add_argument(
        "--unprotected", action="store_true", help="do not keep trials from writing outside their own copy"
    )


def limits(args: argparse.Namespace) -> Limits:
    """Return the limits on writing that were asked for. Raises GobrrrError for a folder that is not there."""
    from gobrrr.trial.sandbox.limits import Limits

    for place in args.allowed:
        if not place.exists():
            raise GobrrrError(f"--allow-writes {place}: there is no such folder", "make it first")
    return Limits(tuple(place.resolve() for place in args.allowed), args.unprotected)
