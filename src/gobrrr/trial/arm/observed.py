"""The guard's side of an arm, in the user's process: watches so many steps and leaves what it saw in the arm's folder.

A run of its own, never a timed one. It needs no turns: nobody waits for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from gobrrr.capture.process.config import Config
from gobrrr.capture.session.session import StopProgram
from gobrrr.capture.steps import loops
from gobrrr.recording.model.event_kinds import UPDATES
from gobrrr.system import files
from gobrrr.system.processes import die_with_the_parent
from gobrrr.trial.arm import protocol
from gobrrr.trial.arm.in_process import applied_remedies

CALLS_PER_STEP = 64
"""Calls of models in one step, at most, before a program of which nobody has seen a step is
taken to make no updates."""


class Observing:
    """An arm's capture.process.bootstrap.Watcher: for the guard."""

    def __init__(self, config: Config) -> None:
        self.config, self._folder = config, Path(config.folder)
        self._told = protocol.Line(self._folder / protocol.TOLD)
        self._outer = contextlib.ExitStack()
        self._pid = os.getpid()
        self.ended = False
        self.nested = False

    def begin(self) -> None:
        """Seeds first, then the remedies, then the witness: it must see what they do."""
        from gobrrr.guard.reference.float64 import in_float64
        from gobrrr.guard.reference.seeds import shifted
        from gobrrr.guard.reference.states import States
        from gobrrr.guard.watch.witness import Witness

        die_with_the_parent(starter=self.config.referee)
        self._outer.enter_context(shifted(self.config.seed))
        self._outer.callback(applied_remedies(self.config, self._told).remove)
        prepare = in_float64 if self.config.float64 else None
        states = States(Path(self.config.states), bool(self.config.keeps)) if self.config.states else None
        self._witness = self._outer.enter_context(
            Witness(
                prepare=prepare,
                after_step=self._step,
                states=states,
                expected=self.config.observe,
                without_dropout=bool(self.config.without_dropout),
                pictures=bool(self.config.pictures),
                real_tokens=bool(self.config.real_tokens),
            )
        )

    def end(self, reason: str = "exit") -> None:
        """The program is over: keep what was seen. Safe to call twice."""
        if self.ended or os.getpid() != self._pid:
            return
        self.ended = True
        from gobrrr.guard.model import observation

        self._witness.complete = reason == "exit"
        self._witness.printed = self._printed()
        observation.write(self._witness.observation(), self._folder / protocol.OBSERVED)
        self._outer.close()
        with contextlib.suppress(OSError):
            self._told.send("ended", reason=reason, steps=self._witness.num_steps)

    def forked(self) -> None:
        """A loader's worker: nothing is watched in it."""
        self.ended = True
        die_with_the_parent()
        with contextlib.suppress(OSError):
            self._told.close()

    def mark(self) -> None:
        """Explicit steps change nothing here."""

    def _printed(self) -> dict[str, tuple[tuple[str, ...], ...]] | None:
        """Return what the program has written to stdout, which is a file of the arm's folder."""
        from gobrrr.guard.watch.effects import MOST_TEXT, printed

        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            return printed(files.read(self._folder / protocol.STDOUT, MOST_TEXT).decode(errors="replace"))
        return None

    def _step(self, updates: int, calls: int) -> None:
        if self.ended or os.getpid() != self._pid:
            return
        loop = loops.read(self.config.loop)
        infers = loop[0] != UPDATES if loop else calls >= self.config.observe * CALLS_PER_STEP
        if updates >= self.config.observe or (not updates and infers and calls >= self.config.observe):
            self.end("enough")
            raise StopProgram(0)
