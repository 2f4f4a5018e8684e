"""The arm's side of a trial, in the user's process: stops at step boundaries and goes on when it is told to.

It finds steps as `gobrrr run` does, with the same hooks, and writes no recording.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from array import array
from pathlib import Path
from typing import Any

from gobrrr.capture.facts.program_facts import graphs
from gobrrr.capture.hooks.hooks import Hooks
from gobrrr.capture.hooks.transform_guard import hide_own_code, is_the_programs, is_tracing
from gobrrr.capture.process.config import Config
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.session.session import StopProgram
from gobrrr.capture.steps import loops
from gobrrr.capture.steps.device_memory import cuda_in_use
from gobrrr.errors import GobrrrError
from gobrrr.guard.reference.seeds import seed
from gobrrr.system.processes import die_with_the_parent
from gobrrr.trial.arm import meters, protocol
from gobrrr.trial.arm.handshake import TELL_NS, ArmSide, Phase
from gobrrr.trial.arm.in_process import applied_remedies


class _Nowhere:
    """A journal that keeps nothing: an arm's blocks are all that is asked of it."""

    def events(self, values: array[int]) -> None: ...

    def json(self, value: Any) -> None: ...

    def close(self) -> None: ...


class Inside:
    """An arm's capture.process.bootstrap.Watcher: for timed blocks."""

    def __init__(self, config: Config) -> None:
        self.config, folder = config, Path(config.folder)
        self._ask, self._told = protocol.Line(folder / protocol.ASK), protocol.Line(folder / protocol.TOLD)
        self.recorder = Recorder(lambda: _Nowhere(), self._boundary)  # type: ignore[arg-type, return-value]
        self._hooks = Hooks(self.recorder, self._failed)
        self._began = time.perf_counter_ns()
        self._side = ArmSide(loops.read(config.loop))
        self._gauge = meters.of(config.objective)
        self._granted = self._thread = self._once_ns = 0
        self.ended = False
        self.nested = False

    def begin(self) -> None:
        """Die with the referee, watch for steps, seed what the program may not, apply the remedies."""
        die_with_the_parent(starter=self.config.referee)
        hide_own_code()
        self._hooks.install()
        seed()
        self._gauge.install()
        applied_remedies(self.config, self._told, self._put_aside)

    def end(self, reason: str = "exit") -> None:
        """The program is over: say so. Safe to call twice."""
        if self.ended or os.getpid() != self.recorder.pid:
            return
        self.ended = True
        self._hooks.remove()
        with contextlib.suppress(OSError):
            self._told.send("ended", reason=reason, steps=len(self._side.walls))

    def forked(self) -> None:
        """In a forked child, a loader's worker say: the FIFOs are the parent's, and with the parent it dies."""
        self.ended = True
        die_with_the_parent()
        with contextlib.suppress(OSError):
            self._ask.close()
            self._told.close()

    def mark(self) -> None:
        """An explicit step ends here."""
        self.recorder.explicit()

    def _boundary(self, kind: int, number: int, now: int) -> None:
        """A step has ended."""
        if self.ended or is_tracing():
            return
        before = len(self._side.walls)
        message = self._side.boundary((kind, number), now)
        self._gauge.step(len(self._side.walls) > before)
        if message is None:
            return
        if message["kind"] == "ready":
            message["seconds"] = (now - self._began) / 1e9
        elif message["kind"] == "block":
            message |= self._block()
        self._told.send(**message)
        self._wait()

    def _block(self) -> dict[str, Any]:
        """End the block: work that the device still does belongs to it."""
        _synchronise()
        ns = time.perf_counter_ns() - self._granted - self._side.aside_ns
        told = {"steps": len(self._side.walls), "walls": self._side.walls, "ns": ns, "graphs": graphs()}
        return told | self._gauge.end()

    def _put_aside(self, ns: int) -> None:
        """Take work that comes once out of the step; work of another thread beside it was never in. Where a device
        works meanwhile nobody knows how much of it the step would have waited for: it stays in."""
        if threading.get_ident() != self._thread or cuda_in_use() is not None:
            return
        self._side.put_aside(ns)
        self._once_ns += ns
        if self._once_ns >= TELL_NS:
            self._told.send("once", ns=self._once_ns)
            self._once_ns = 0

    def _wait(self) -> None:
        """Stand still until the referee grants steps."""
        while self._side.phase is Phase.HELD:
            message = self._ask.receive() or {"kind": "end"}
            if message["kind"] == "run":
                self._begin(bool(message.get("warm")))
            self._granted, self._thread = time.perf_counter_ns(), threading.get_ident()
            if again := self._side.told(message, self._granted):
                self._told.send(**again)
        if self._side.phase is Phase.OVER:
            self.end("told to")
            raise StopProgram(0)

    def _begin(self, warm: bool) -> None:
        """A block is to be measured."""
        try:
            self._gauge.begin(warm)
        except GobrrrError as error:
            self._told.send("failed", error=error.message)

    def _failed(self, error: BaseException) -> None:
        if is_the_programs(error) or self.ended:
            return
        with contextlib.suppress(OSError):
            self._told.send("failed", error=f"{type(error).__name__}: {error}")


def _synchronise() -> None:
    if (cuda := cuda_in_use()) is not None:
        cuda.synchronize()
