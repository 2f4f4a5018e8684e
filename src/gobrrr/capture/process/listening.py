"""Who looks closer when a signal comes? Watched processes say so in the run's folder, gobrrr passes it on to them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path
from types import FrameType

from gobrrr.system import processes
from gobrrr.words import NO_LOOK

NAME = "seen-{}.listens"
"""File that holds when the process of that number began."""
_NAMED = re.compile(r"seen-([1-9][0-9]{0,8})\.listens")
"""Never 0 nor below: those numbers mean whole groups of processes, or all there are."""


class Listener:
    """Hears one signal in the watched process. Its handler stays to the end: whoever sends it late must not kill."""

    def __init__(self, number: int, folder: str) -> None:
        self.asked = False
        self.why_not = ""
        """Why nobody hears it: the program's own handler is never replaced."""
        self._number, self._handler = number, self._heard
        self._file = Path(folder, NAME.format(os.getpid()))

    def begin(self) -> None:
        """Install the handler, and say so."""
        if callable(signal.getsignal(self._number)):
            self._gives_way("handles it itself")
            return
        try:
            signal.signal(self._number, self._handler)
        except ValueError:
            self._gives_way("imports torch in another thread than its first")
            return
        signal.siginterrupt(self._number, False)  # what the program waits for goes on
        with contextlib.suppress(OSError):
            self._file.write_text(str(processes.began() or 0), encoding="ascii")

    def check(self) -> None:
        """Give way to a handler that the program has installed meanwhile."""
        if not self.why_not and signal.getsignal(self._number) != self._handler:
            self._gives_way("has a handler of its own since")

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def _gives_way(self, how: str) -> None:
        name = signal.Signals(self._number).name
        self.why_not = f"the program {how}, so {name} {NO_LOOK}: name another with --on-signal"
        with contextlib.suppress(OSError):
            self._file.unlink()


def pass_on(number: int, folder: Path) -> int:
    """Send the signal to all that listen for it; returns how many did."""
    sent = 0
    for file in folder.glob(NAME.format("*")):
        named = _NAMED.fullmatch(file.name)
        with contextlib.suppress(OSError, ValueError):
            if named and (processes.began(pid := int(named[1])) or 0) == int(file.read_text(encoding="ascii")):
                os.kill(pid, number)  # else the number is another's by now
                sent += 1
    return sent
