"""`gobrrr tune`: try the remedies on the program's own step, keep what is proven, leave a recipe and a receipt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gobrrr.cli import redaction, writes
from gobrrr.errors import GobrrrError


class Tune:
    """Try remedies on the program's own step and keep what helps."""

    name = "tune"
    help = "try remedies on the program's own step, keep what is proven to help"
    takes_program = True

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """All options stand before the program."""
        parser.usage = "gobrrr tune [options] script.py [args] | -m module [args] | -- command [args]"
        parser.add_argument("-o", dest="folder", metavar="DIR", help="folder for the results (default .gobrrr/<run>)")
        parser.add_argument("--minutes", type=_more_than_zero, default=10.0, metavar="M", help="time to spend (10)")
        parser.add_argument(
            "--try", dest="named", type=_names, default=(), metavar="A,B",
            help="remedies to try whatever the diagnosis says; semantic ones are tried only so",
        )  # fmt: skip
        parser.add_argument("--without", type=_names, default=(), metavar="A,B", help="remedies not to try")
        parser.add_argument(
            "--remedies", "--only", dest="only", type=_names, default=(), metavar="A,B", help="these alone"
        )
        parser.add_argument("--resume", metavar="DIR", help="go on with a tuning that was interrupted")
        parser.add_argument("--seed", type=int, default=0, help="of the order of blocks (0)")
        writes.add_options(parser)
        parser.add_argument(
            "--price-per-hour", type=_more_than_zero, metavar="X", help="also say what it saves in money"
        )
        redaction.add_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Diagnose, try, confirm, write; Ctrl-C leaves a valid receipt of what was finished."""
        from gobrrr.capture import folders
        from gobrrr.cli import run as run_verb
        from gobrrr.cli import tuning

        command = run_verb.program_of(args.program)
        limits = writes.limits(args)
        folder = _resumed(args.resume) if args.resume else folders.of_run(args.folder, command, "tune-")
        wishes = tuning.Wishes(
            seconds=args.minutes * 60, named=args.named, without=args.without, only=args.only, seed=args.seed,
            limits=limits, redact=args.redact,
        )  # fmt: skip
        outcome = tuning.tune(command, Path.cwd(), folder, wishes, sys.stderr)
        tuning.tell(outcome, redaction.shown(args.program, args.redact), sys.stderr, args.price_per_hour)
        return 0 if outcome.receipt.complete else 130


def _resumed(folder: str) -> Path:
    """The folder of an earlier tuning. Raises GobrrrError for what is none, and where a link would lead out of it."""
    found = Path(folder)
    left = ("journal.jsonl", "receipt.json")  # interrupted in its first trial it has no journal
    if not any((found / name).is_file() for name in left):
        raise GobrrrError(f"{folder} holds no tuning to go on with", "name the folder that `gobrrr tune` wrote into")
    for entry in (*found.iterdir(), *(found / "diagnosis").glob("*")):
        if entry.is_symlink():
            raise GobrrrError(f"{entry} is a link, which gobrrr tune makes none of", "tune into a new folder")
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _more_than_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


command = Tune()
