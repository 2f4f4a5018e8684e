"""One arm that runs the program from beginning to end: what it printed and wrote, and by its account what it did."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import astuple, replace

from gobrrr.guard.model.account import Account, Calls, Measured, Row
from gobrrr.system import files
from gobrrr.trial.arm import protocol, ranks
from gobrrr.trial.arm.arm import GRACE_S, WHOLE, Arm, ArmError
from gobrrr.trial.sandbox import limits

MOST_PRINTED, MOST_LOGGED = 16 << 20, 4096
"""Bytes of the end of what is printed that are kept, and lines of stderr, where loggers and progress bars write."""


class Ran(NamedTuple):
    """A whole run; `folder`: the arm's copy of the program's own."""

    row: Row
    printed: str
    folder: Path
    began_ns: int
    """By the clock of the file system: an older file is not of this run."""
    measured: Mapping[tuple[str, str], float | str] = MappingProxyType({})
    """Values that were measured in the process, by name and measure; a text says why not."""
    trains: str = ""
    """Sign that its evaluation trains; empty where nothing does."""
    taken: Sequence[Measured] = ()
    """The same measures with what they were taken on."""
    source: Path | None = None
    """The program's folder, of which `folder` was a copy."""


class WholeRun(Arm):
    """An arm without turns."""

    def whole(self, seed: int, seconds: float, measures: Sequence[tuple[str, str]] = ()) -> Ran:
        """Run it to its end, its seeds moved by `seed`; `measures`: name and where, to be taken in its process. Of
        several ranks counts are summed. Raises ArmError where it fails, or takes longer."""
        self._launch(WHOLE, seed=seed, measures=json.dumps(measures))
        assert self._process is not None and self.account is not None
        stdout = self._folder / protocol.STDOUT
        began_ns = stdout.stat().st_mtime_ns  # made by the launch, and as yet empty
        self._expect("ended", seconds)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(seconds if ranks.launcher(self._command) else GRACE_S):
                raise self._gone()
        accounts = [self.account, *self.rank_accounts()]
        if not all(each.rows for each in accounts):
            raise ArmError("it left no account of what it did")
        with files.opened(stdout) as file:
            file.seek(max(0, stdout.stat().st_size - MOST_PRINTED))
            printed = file.read().decode(errors="replace")
        said = "\n".join([*limits.last_lines(self._folder, MOST_LOGGED), printed])  # what is printed counts first
        trains = next((each.trains for each in accounts if each.trains), "")
        row = _of_all([each.rows[-1] for each in accounts])
        taken = _of_all_ranks(accounts)
        measured = {
            (each.name, each.measure): each.error
            or (each.total / each.weight if each.weight else "it was not measured")
            for each in taken
        }
        return Ran(row, said, self._work, began_ns, measured, trains, taken, self._source)


def _of_all(rows: Sequence[Row]) -> Row:
    """Add the counts of all ranks; an update is one where all make it."""
    trained, evaluated = (
        Calls(*map(sum, zip(*map(astuple, side), strict=True)))
        for side in ([row.trained for row in rows], [row.evaluated for row in rows])
    )
    given, made = (
        (math.fsum(each[0] for each in side), math.fsum(each[1] for each in side))
        for side in ([row.given for row in rows], [row.made for row in rows])
    )
    updates = min(row.updates for row in rows)
    return replace(rows[0], updates=updates, trained=trained, evaluated=evaluated, given=given, made=made)


def _of_all_ranks(accounts: Sequence[Account]) -> list[Measured]:
    """Add each measure's samples of all ranks; what was logged is of rank 0."""
    found = []
    for number, first in enumerate(accounts[0].measured):
        every = [each.measured[number] for each in accounts[: 1 if first.measure.startswith("log:") else None]]
        error = next((each.error for each in every if each.error), "")
        given = math.fsum(each.given[0] for each in every), math.fsum(each.given[1] for each in every)
        total, weight = sum(each.total for each in every), sum(each.weight for each in every)
        found.append(replace(first, total=total, weight=weight, error=error, given=given))
    return found
