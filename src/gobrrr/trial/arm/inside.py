"""An arm's side in the user's process: it applies the remedies, and makes blocks in turn or is watched for the guard.

Blocks stop at step boundaries and go on when the referee says so; steps are found with the hooks of `gobrrr run`, and
nothing is recorded. A run that the guard watches is one of its own, never timed: it needs no turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import msgspec

from gobrrr.capture.facts.program_facts import graphs
from gobrrr.capture.hooks.hooks import Hooks
from gobrrr.capture.hooks.transform_guard import hide_own_code, is_the_programs, is_tracing
from gobrrr.capture.process.config import Config
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.session.session import Session, StopProgram
from gobrrr.capture.source.user_code import user_line
from gobrrr.capture.steps import loops
from gobrrr.capture.steps.device_memory import cuda_in_use
from gobrrr.errors import GobrrrError
from gobrrr.guard.reference.variants import seed
from gobrrr.guard.reference.watched_steps import LATE_TWINS
from gobrrr.guard.watch.effects import tell_of_torch_save
from gobrrr.recording.model.event_kinds import UPDATES
from gobrrr.system import files
from gobrrr.system.processes import die_with_the_parent
from gobrrr.trial.arm import meters, protocol
from gobrrr.trial.arm.evaluation import Evaluation
from gobrrr.trial.arm.protocol import TELL_NS, ArmSide, Phase
from gobrrr.trial.arm.ranks import ACCOUNT, Nobody, suffix, world_size
from gobrrr.trial.arm.tally import Tally


class Diagnosing(Session):
    """The session of `gobrrr run`, in a copy of the user's folder."""

    def prepare(self) -> None:
        """torch.save says what it opens, so that what keeps the user's files hears of it."""
        tell_of_torch_save()


def applied_remedies(config: Config, told: protocol.Line, aside: Callable[[int], object] = lambda ns: None) -> Any:
    """The seams with an arm's remedies installed; the referee hears which ones took hold, and why others did not.
    `aside`: as Seams has it."""
    from gobrrr.remedies.mechanism.applying import install
    from gobrrr.remedies.mechanism.seams import Seams

    tell_of_torch_save()

    def failed(error: BaseException) -> None:
        told.send("failed", error=getattr(error, "message", None) or f"{type(error).__name__}: {error}")

    def tell(kind: str) -> Callable[[str, str], None]:
        return lambda name, detail: told.send(kind, remedy=name, detail=detail, line=user_line(sys._getframe()))

    seams = Seams(tell("applied"), failed, tell("declined"), aside)
    try:
        install(seams, config.names())
    except Exception as error:
        failed(error)
        raise StopProgram(1) from None  # without its remedies the program has nothing to do here
    return seams


class _Nowhere:
    """A journal that keeps nothing: an arm's blocks are all that is asked of it."""

    def events(self, values: array[int]) -> None: ...

    def json(self, value: Any) -> None: ...

    def close(self) -> None: ...


class Inside:
    """An arm's capture.process.bootstrap.Watcher: for timed blocks."""

    def __init__(self, config: Config) -> None:
        self.config, folder = config, Path(config.folder)
        self._ask: Any = protocol.Line(folder / protocol.ASK)
        self._told: Any = protocol.Line(folder / protocol.TOLD)
        self.recorder = Recorder(lambda: _Nowhere(), self._boundary)  # type: ignore[arg-type, return-value]
        self._hooks = Hooks(self.recorder, self._failed)
        self._began = perf_counter_ns()  # bound before the program runs, which may put another clock there
        self._side = ArmSide(loops.read(config.loop))
        self._gauge = meters.of(config.objective)
        self._tally = Tally(self.recorder, self._counted, config.account > 1) if config.account else None
        self._granted = self._thread = self._once_ns = self._own_ns = 0
        self.ended = False
        self.nested = False

    def begin(self) -> None:
        """Die with the referee, watch for steps, seed what the program may not, apply the remedies."""
        die_with_the_parent(starter=self.config.referee)
        hide_own_code(*(["gobrrr.trial"] if self._tally is not None else []))
        if self._tally is not None:
            self._tally.install()
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
            over = {"account": self._tally.taken(over=reason == "exit")} if self._tally is not None else {}
            self._told.send("ended", reason=reason, steps=len(self._side.walls), **over)

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
        if self._tally is not None and (kind, number) == self._side.loop:
            self._tally.step_ended()
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
        if (cuda := cuda_in_use()) is not None:
            cuda.synchronize()
        whole = perf_counter_ns() - self._granted
        told = {"steps": len(self._side.walls), "walls": self._side.walls, "ns": whole - self._side.aside_ns,
                "whole_ns": whole - self._own_ns, "own_ns": self._own_ns, "graphs": graphs()}  # fmt: skip
        if self._tally is not None:
            told |= {"account": self._tally.taken(), "rows": self._tally.block_rows()}
        return told | self._gauge.end()

    def _put_aside(self, ns: int) -> None:
        """Take work that comes once out of the step; work of another thread beside it was never in. Where a device
        works meanwhile nobody knows how much of it the step would have waited for: it stays in."""
        if get_ident() != self._thread or cuda_in_use() is not None:
            return
        self._side.put_aside(ns)
        self._once_ns += ns
        if self._once_ns >= TELL_NS:
            self._told.send("once", ns=self._once_ns)
            self._once_ns = 0

    def _counted(self, ns: int) -> None:
        """So long was counted, which is no part of the program. Beside a device's work it cost nothing."""
        if get_ident() == self._thread and cuda_in_use() is None:
            self._side.put_aside(ns)
            self._own_ns += ns

    def _wait(self) -> None:
        """Stand still until the referee grants steps."""
        while self._side.phase is Phase.HELD:
            message = self._ask.receive() or {"kind": "end"}
            if message["kind"] == "run":
                self._begin(bool(message.get("warm")))
            self._granted, self._thread, self._own_ns = perf_counter_ns(), get_ident(), 0
            if again := self._side.told(message, self._granted):
                self._told.send(**again)
        if self._side.phase is Phase.OVER:
            self.end("told to")
            raise StopProgram(0)

    def _begin(self, warm: bool) -> None:
        """A block is to be measured."""
        if self._tally is not None:
            self._tally.block_begins()
        try:
            self._gauge.begin(warm)
        except GobrrrError as error:
            self._told.send("failed", error=error.message)

    def _failed(self, error: BaseException) -> None:
        if is_the_programs(error) or self.ended:
            return
        with contextlib.suppress(OSError):
            self._told.send("failed", error=f"{type(error).__name__}: {error}")


class Follower(Inside):
    """A Watcher of another rank than 0 in a timed arm: it listens to nobody and goes as far as rank 0 lets it. Its
    account goes into a file, a line for each step that is looked at."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._ask.close()
        self._told.close()
        self._ask = self._told = Nobody()
        self._kept = Path(config.folder) / (ACCOUNT + suffix())

    def end(self, reason: str = "exit") -> None:
        """Write the last of the account. Safe to call twice."""
        if self.ended or os.getpid() != self.recorder.pid:
            return
        self.ended = True
        self._hooks.remove()
        if self._tally is not None:
            self._keep(self._tally.taken(over=reason == "exit"))

    def _boundary(self, kind: int, number: int, now: int) -> None:
        if self.ended or self._tally is None or is_tracing():
            return
        self._side.loop = self._side.loop or (kind, number)
        if (kind, number) == self._side.loop:
            self._tally.step_ended()
            if (taken := self._tally.taken())["rows"]:
                self._keep(taken)

    def _keep(self, account: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), self._kept.open("ab") as file:
            file.write(json.dumps(account).encode() + b"\n")


class Whole(Inside):
    """A Watcher of a run from beginning to end, from its own seed: what it did is counted, its gates are measured."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tally = Evaluation(self.recorder, json.loads(config.measures or "[]"))

    def begin(self) -> None:
        """Move every seed, then count."""
        from gobrrr.guard.reference.variants import shifted

        die_with_the_parent(starter=self.config.referee)
        hide_own_code("gobrrr.trial")
        self._seeds = contextlib.ExitStack()  # held until the process ends
        self._seeds.enter_context(shifted(self.config.seed))
        if self._tally is not None:
            self._tally.install()
        self._hooks.install()
        applied_remedies(self.config, self._told)

    def _boundary(self, kind: int, number: int, now: int) -> None:
        """Steps end, and nobody waits for them."""


class WholeFollower(Whole, Follower):
    """The same of another rank than 0, whose lines are not read: a job's value is what rank 0 prints."""

    def begin(self) -> None:
        """Print elsewhere, then count."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        super().begin()


def whole(config: Config) -> Whole:
    """Return the watcher of a whole run's process."""
    return WholeFollower(config) if suffix() else Whole(config)


def timed(config: Config) -> Inside:
    """Return the watcher of a timed arm's process."""
    return Follower(config) if suffix() else Inside(config)


CALLS_PER_STEP = 64
"""Calls of models in one step, at most, before a program of which nobody has seen a step is
taken to make no updates."""


class Observing:
    """An arm's capture.process.bootstrap.Watcher: for the guard."""

    def __init__(self, config: Config) -> None:
        self.config, self._folder, self._rank = config, Path(config.folder), suffix()
        self._told: Any = Nobody() if self._rank else protocol.Line(self._folder / protocol.TOLD)
        self._outer = contextlib.ExitStack()
        self._pid = os.getpid()
        self.ended = False
        self.nested = False

    def begin(self) -> None:
        """Seeds first, then the remedies, then the witness: it must see what they do."""
        from gobrrr.guard.reference.states import States
        from gobrrr.guard.reference.variants import in_float64, shifted
        from gobrrr.guard.watch.witness import Witness

        die_with_the_parent(starter=self.config.referee)
        self._outer.enter_context(shifted(self.config.seed))
        self._outer.callback(applied_remedies(self.config, self._told).remove)
        prepare = in_float64 if self.config.float64 else None
        parts = json.loads(self.config.parts) if self.config.parts else None
        states = States(Path(self.config.states + self._rank), bool(self.config.keeps)) if self.config.states else None
        self._witness = self._outer.enter_context(
            Witness(prepare=prepare, after_step=self._step, states=states, expected=self.config.observe,
                    without_dropout=bool(self.config.without_dropout), late=self.config.late, parts=parts)
        )  # fmt: skip

    def end(self, reason: str = "exit") -> None:
        """The program is over: keep what was seen. Safe to call twice."""
        if self.ended or os.getpid() != self._pid:
            return
        self.ended = True
        from gobrrr.guard.model import observation

        self._witness.complete = reason == "exit"
        self._witness.printed = self._printed()
        seen = msgspec.structs.replace(self._witness.observation(), ranks=world_size())
        observation.write(seen, self._folder / (protocol.OBSERVED + self._rank))
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

        if world_size() > 1:
            return None  # lines of several ranks, in any order
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            return printed(files.read(self._folder / protocol.STDOUT, MOST_TEXT).decode(errors="replace"))
        return None

    def _step(self, updates: int, calls: int) -> None:
        if self.ended or os.getpid() != self._pid:
            return
        loop = loops.read(self.config.loop)
        enough = self.config.observe + (LATE_TWINS if self.config.late else 0)
        infers = loop[0] != UPDATES if loop else calls >= self.config.observe * CALLS_PER_STEP
        if updates >= enough or (not updates and infers and calls >= self.config.observe):
            self.end("enough")
            raise StopProgram(0)
