"""Has the computer's gauges written into a run's folder while its program runs, by a process beside it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import msgspec

from gobrrr.machine.gauges import sampler
from gobrrr.machine.gauges.readings import NO_ANSWER, Head
from gobrrr.system.run_folder import GAUGES

PATIENCE_S = 2.0
"""How long a sampler that was told to end may take: a driver that hangs is left alone after it."""


class Gauging:
    """While it is entered, gauges are sampled, where there are any. Nothing that goes wrong here is the program's."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / GAUGES
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Gauging:
        if sampler.is_worth_it():
            nowhere = subprocess.DEVNULL
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    sampler.command(str(self._file)), stdin=nowhere, stdout=nowhere, stderr=nowhere
                )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)  # in a driver's call it may not even hear this
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        if not self._file.exists():
            with contextlib.suppress(OSError):
                self._file.write_bytes(msgspec.json.encode(Head(why_none=NO_ANSWER)) + b"\n")
