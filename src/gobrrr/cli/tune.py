"""`gobrrr tune`: try the remedies on the program's own step, keep what is proven, leave a recipe and a receipt."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import redaction, writes
from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr.trial.receipt import Receipt

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate-launch",
             "accelerate.commands.launch", "deepspeed", "horovodrun", "mpirun", "mpiexec")  # fmt: skip
OPEN, UNMEASURED = 3, 5
"""Exit codes; see docs/decisions/0014-tune-is-a-race.md."""


class Tune:
    """Try remedies on the program's own step and keep what helps."""

    name = "tune"
    help = "try remedies on the program's own step, keep what is proven to help"
    takes_program = True

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """All options stand before the program."""
        parser.usage = "gobrrr tune [options] script.py [args] | -m module [args] | -- command [args]"
        parser.add_argument("-o", dest="folder", metavar="DIR", help="folder for the results (default .gobrrr/<run>)")
        parser.add_argument(
            "--minutes", type=_more_than_zero, default=10.0, metavar="M", help="wall time to spend, all in all (10)"
        )
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
        _check_ranks(command)
        limits = writes.limits(args)
        folder = _resumed(args.resume) if args.resume else folders.of_run(args.folder, command, "tune-")
        wishes = tuning.Wishes(
            seconds=args.minutes * 60, named=args.named, without=args.without, only=args.only, seed=args.seed,
            limits=limits, redact=args.redact,
        )  # fmt: skip
        outcome = tuning.tune(command, Path.cwd(), folder, wishes, sys.stderr)
        tuning.tell(outcome, redaction.shown(args.program, args.redact), sys.stderr, args.price_per_hour)
        return exit_code(outcome.receipt)


def _check_ranks(command: Sequence[str]) -> None:
    """Raises GobrrrError for a program of several ranks: an arm is one process, and nothing was run yet."""
    words = [*(Path(word).name for word in command[:2]), *(command[2:3] if command[1:2] == ["-m"] else [])]
    launcher = next((word for word in words if word in LAUNCHERS), "")
    if launcher or int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise GobrrrError(
            f"{launcher or 'WORLD_SIZE'} starts several ranks, and gobrrr tune measures programs of one process",
            "tune one rank's program by itself: gobrrr tune train.py",
        )


def exit_code(receipt: Receipt) -> int:
    """0: something was kept, or none of what was measured helps. OPEN: something may help and was not confirmed.
    UNMEASURED: nothing is known of any remedy. 130: interrupted."""
    if not receipt.complete:
        return 130
    if not receipt.measured:
        return UNMEASURED
    ends = [trial.verdict for trial in receipt.trials if trial.purpose in ("guard", "final")]
    answered = not receipt.likely or (ends and ends[-1] not in ("inconclusive", "failed"))
    return 0 if answered else OPEN


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
