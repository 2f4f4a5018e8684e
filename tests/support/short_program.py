"""An arm of a program that makes so many steps and ends, played by a fake."""

from __future__ import annotations

import threading
import time

from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.protocol import Block


class ShortArm:
    """`step_ns` a step; the first one is made before it is asked for any. `broken`: it never comes up. `killed`: it
    comes up late, and is never warm."""

    def __init__(
        self, num: int = 40, step_ns: int = 50_000_000, broken: str = "", killed: threading.Event | None = None
    ) -> None:
        self._killed = killed
        self.applied: dict[str, str] = {}
        self.declined: dict[str, str] = {}
        self.start_seconds, self.peak_bytes = 1.0, 0
        self._num, self._step_ns, self._broken, self._done = num, step_ns, broken, 1

    def start(self, seconds: float = 0.0) -> None:
        if self._killed is not None:
            time.sleep(0.1)
        if self._broken:
            raise ArmError(self._broken)

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        if self._killed is not None:
            self._killed.wait()
            raise ArmError("it was ended")
        self._done += steps
        if self._done > self._num:
            raise ArmError("the program came to its end", over=True)
        return Block(steps * self._step_ns, (self._step_ns,) * steps)

    def end(self) -> None:
        """At once."""

    def alive(self) -> bool:
        """Always."""
        return True

    def resident(self) -> int:
        """Nothing."""
        return 0

    def wanting(self) -> int:
        """None."""
        return 0

    def pause(self) -> None:
        """It has no processes."""

    def resume(self) -> None:
        """It has no processes."""
