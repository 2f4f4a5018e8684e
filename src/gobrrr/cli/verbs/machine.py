"""`gobrrr machine`: what this computer can do, measured here."""

from __future__ import annotations

import argparse
import sys


class MachineCommand:
    """Prints the ceilings from the cache, or measures them; torch stays in a process of its own."""

    name = "machine"
    help = "what this computer can do, measured here"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Arguments of the verb."""
        parser.add_argument("--refresh", action="store_true", help="measure again (at most 20 s)")
        parser.add_argument(
            "--json", nargs="?", const="", metavar="FILE", help="write the machine (or the disk) as JSON, or print it"
        )
        parser.add_argument(
            "--python", metavar="PATH", help="the interpreter whose torch to measure (default: this one)"
        )

        parser.add_argument(
            "--disk",
            metavar="FOLDER",
            help="how fast this folder's disk gives samples back, by layout of the data (20 s, 768 MiB, removed)",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Print to stdout, progress to stderr; raises TorchMissing where there is no torch to measure with."""
        if args.disk is not None:
            return _disk(args.disk, args.json)
        from gobrrr.machine.measure.store import load_or_measure

        machine = load_or_measure(refresh=args.refresh, notify=_say, interpreter=args.python)
        if args.json is not None:
            _put(machine, args.json)
        else:
            from gobrrr.report.machine.table import show

            show(machine, sys.stdout)
        return 0


def _disk(folder: str, file: str | None) -> int:
    from pathlib import Path

    from gobrrr.cli.interrupts import Interrupts
    from gobrrr.machine.measure.disk import measure

    _say(f"measuring the disk of {folder} (about 20 s) ...")
    with Interrupts() as interrupts:  # SIGTERM too: what was written is removed
        try:
            disk = measure(Path(folder))
        except KeyboardInterrupt:
            return interrupts.exit_code
    if file is not None:
        _put(disk, file)
    else:
        from gobrrr.report.machine.disk import show

        show(disk, folder, sys.stdout)
    return 0


def _put(noun: object, file: str) -> None:
    """Write the noun as JSON, into the file or to stdout."""
    import msgspec

    from gobrrr.cli.verbs.report import put

    put(msgspec.json.format(msgspec.json.encode(noun), indent=2) + b"\n", file)


def _say(text: str) -> None:
    print(f"gobrrr: {text}", file=sys.stderr, flush=True)


command = MachineCommand()
