"""One arm that runs the program from beginning to end: what it printed and wrote, and by its account what it did."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import NamedTuple

from gobrrr.guard.model.account import Row
from gobrrr.system import files
from gobrrr.trial.arm import protocol
from gobrrr.trial.arm.arm import GRACE_S, WHOLE, Arm, ArmError

MOST_PRINTED = 16 << 20
"""Bytes of the end of what is printed that are kept."""


class Ran(NamedTuple):
    """A whole run; `folder`: the arm's copy of the program's own."""

    row: Row
    printed: str
    folder: Path
    began_ns: int
    """By the clock of the file system: an older file is not of this run."""


class WholeRun(Arm):
    """An arm without turns."""

    def whole(self, seed: int, seconds: float) -> Ran:
        """Run it to its end, its seeds moved by `seed`. Raises ArmError where it fails, or takes longer."""
        self._launch(WHOLE, seed=seed)
        assert self._process is not None and self.account is not None
        stdout = self._folder / protocol.STDOUT
        began_ns = stdout.stat().st_mtime_ns  # made by the launch, and as yet empty
        self._expect("ended", seconds)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(GRACE_S):
                raise self._gone()
        if not self.account.rows:
            raise ArmError("it left no account of what it did")
        with files.opened(stdout) as file:
            file.seek(max(0, stdout.stat().st_size - MOST_PRINTED))
            printed = file.read().decode(errors="replace")
        return Ran(self.account.rows[-1], printed, self._work, began_ns)
