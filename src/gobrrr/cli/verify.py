"""`gobrrr verify`: measure a receipt's recipe once more, on this machine, and say whether it still holds."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from gobrrr.errors import GobrrrError

DIFFERS = 3
"""Exit code where the repeated measurement contradicts the receipt."""


class Verify:
    """Repeat the final measurement of a receipt."""

    name = "verify"
    help = "repeat a receipt's measurement here"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """The receipt, and how long it may take."""
        parser.add_argument("receipt", help="receipt.json of a tuning")
        parser.add_argument("--minutes", type=float, default=2.0, metavar="M", help="time for the blocks (2)")
        parser.add_argument("--seed", type=int, default=1, help="of the order of blocks (1)")

    def run(self, args: argparse.Namespace) -> int:
        """Measure and guard; 0 where the recipe is faster here with its numbers intact, else 3."""
        from gobrrr.report.tuning import times
        from gobrrr.trial import receipt as receipts
        from gobrrr.trial.referee import LiveReferee, Program
        from gobrrr.trial.search import Plan
        from gobrrr.trial.workspace import mark_output

        file = Path(args.receipt)
        before = receipts.read(file)
        if not before.kept or before.speedup is None:
            raise GobrrrError(f"{file} kept no remedy: there is nothing to repeat", "tune the program again")
        source = Path(before.folder)
        if not source.is_dir():
            raise GobrrrError(f"the folder of the program is gone: {source}", "put it back, or tune again")
        folder = file.resolve().parent / "verify"
        shutil.rmtree(folder, ignore_errors=True)
        mark_output(folder)
        referee = LiveReferee(Program(before.command, source, before.step_ns or 0.0), folder, seed=args.seed,
                              seconds=args.minutes * 60)  # fmt: skip
        try:
            found = referee.measure(Plan("final", (), before.kept))
            if found.speedup is None:
                raise GobrrrError(f"it could not be measured: {found.reason}", "run the program by itself first")
            guarded = referee.guard(before.kept)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"receipt   {times(before.speedup)}, numbers {before.guard.verdict}, {before.date}")
        print(f"here      {times(found.speedup)}, {found.verdict}, numbers {guarded.verdict}")
        for reason in guarded.reasons if not guarded.green else ():
            print(f"          {reason}", file=sys.stderr)
        holds = found.verdict == "faster" and guarded.green
        overlap = found.speedup.low <= before.speedup.high and before.speedup.low <= found.speedup.high
        print("verdict   " + ("holds" if holds and overlap else "still faster, by another factor" if holds
                              else "does not hold here"))  # fmt: skip
        return 0 if holds else DIFFERS


command = Verify()
