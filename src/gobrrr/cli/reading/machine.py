"""`gobrrr machine`: what this computer can do, measured here."""

from __future__ import annotations

import argparse
import sys


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--refresh", action="store_true", help="measure again (at most 20 s)")
    parser.add_argument("--json", nargs="?", const="", metavar="FILE", help="write the machine as JSON, or print it")
    parser.add_argument("--python", metavar="PATH", help="the interpreter whose torch to measure (default: this one)")


def run(args: argparse.Namespace) -> int:
    """Print to stdout, progress to stderr; raises TorchMissing where there is no torch to measure with."""
    from gobrrr.machine.measure.store import load_or_measure

    machine = load_or_measure(refresh=args.refresh, notify=_say, interpreter=args.python)
    if args.json is not None:
        import msgspec

        from gobrrr.cli.reading.report import put

        put(msgspec.json.format(msgspec.json.encode(machine), indent=2) + b"\n", args.json)
    else:
        from gobrrr.report.forms import formats

        formats.show(machine, sys.stdout)
    return 0


def _say(text: str) -> None:
    print(f"gobrrr: {text}", file=sys.stderr, flush=True)
