"""Whole runs of a program with points of the search, and what each notes of its model while it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.guard.model.gate import Gated
from gobrrr.remedies.edits.lossy import FILE, Facts, Part, Point, Written, name_of
from gobrrr.system import files
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.rule import Gate, Value
from gobrrr.trial.lossy.search import Seen

MOST_BYTES = 8 << 20
"""Bytes that may be noted of a model: a hundred thousand layers."""
NO_PLACE = "no place is found where its model is ready: a line with model.eval(), or from_pretrained"
Noted = TypeVar("Noted")


class Bench:
    """search.Means: each run from one seed, against the program's own values from that seed."""

    def __init__(
        self, means: pairs.Means, folder: Path, edits: dict[str, EditOnTrial], gates: Sequence[Gate],
        write: Callable[[Point, Facts | None, str], Written], until: float, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`edits` are those that arms know by name, the user's own among them; points are added. `write` gives the
        program with a point. Raises GobrrrError where the program as it is cannot be measured."""
        self._means, self._folder, self._edits, self._gates = means, folder, edits, gates
        self._write, self.until, self._say = write, until, say
        self._own = frozenset(edits)
        self._num, self._spent_s = 0, 0.0
        self._facts: Facts | None = None  # the first run is written without
        self._values: list[Value] = []
        try:
            began = time.monotonic()
            self._values, self.facts = self._run((), "run", Facts)
            self.run_s = time.monotonic() - began
            self._facts = self.facts
        except ArmError as error:
            raise GobrrrError(f"the program as it is cannot be measured: {error.reason}",
                              "give more --minutes", UNMEASURED) from None  # fmt: skip
        self.own = Seen(tuple(self._gated(self._values)), self.facts.step_ns, self.facts.bytes)

    def run(self, point: Point) -> Seen:
        """Run a point whole."""
        self._say(f"trying {name_of(point)}")
        try:
            values, facts = self._run(point, "run", Facts)
            ns = self.own.ns / facts.times if facts.times else facts.step_ns
            return Seen(tuple(self._gated(values)), ns, facts.bytes)
        except (ArmError, GobrrrError) as error:
            return Seen(reason=error.reason if isinstance(error, ArmError) else error.message)

    def sensitivity(self, part: Part) -> Mapping[str, float]:
        """Return how much each layer that a form changes matters; empty where the program does not run so."""
        self._say(f"seeing which layers {part.form} changes most")
        try:
            found = self._run((part,), "sensitivity", dict[str, float | None], gates=())[1]
        except (ArmError, GobrrrError):
            return {}
        return {name: math.inf if value is None else value for name, value in found.items()}

    def is_over(self) -> bool:
        """Whether no further run fits into the search's time."""
        return self._means[1]() or time.monotonic() + self._spent_s / max(1, self._num) > self.until

    def stack(self, point: Point, noted: str = "") -> pairs.Stack:
        """Return the names of the edits of a point, those that are gobrrr's as one. Raises GobrrrError where it finds
        no place."""
        others = tuple(part.form for part in point if part.form in self._own)
        own = tuple(part for part in point if part.form not in self._own)
        if not own and not noted:
            return others
        name = f"{name_of(own)}{f' ({noted})' if noted else ''}"
        if name not in self._edits:
            made = self._write(own, self._facts, noted)
            if not made.files:
                raise GobrrrError(NO_PLACE, "call eval() on it at the top level of a function or file", UNMEASURED)
            gates = () if noted == "sensitivity" else tuple(self._gates)
            self._edits[name] = EditOnTrial(ProgramEdit(name, dict(made.files), diff=made.diff), gates=gates)
        return (*others, name)

    def _run(
        self, point: Point, noted: str, kind: type[Noted], gates: Sequence[Gate] | None = None
    ) -> tuple[list[Value], Noted]:
        """Raises ArmError where it does not run, GobrrrError where it cannot be written."""
        stack, began = self.stack(point, noted), time.monotonic()
        self._num += 1
        place, gates = self._folder / f"point{self._num}", self._gates if gates is None else gates
        with pairs.whole(self._means, place, stack, gates, 0, self.until, edited=bool(point)) as (ran, values):
            try:
                seen = msgspec.json.decode(files.read(ran.folder / FILE, MOST_BYTES), type=kind)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise ArmError("it noted nothing of its model: that is never called") from None
        if isinstance(seen, Facts) and not seen.calls:
            raise ArmError("the edited model is never called")
        self._spent_s += time.monotonic() - began
        return values, seen

    def _gated(self, values: Sequence[Value]) -> list[Gated]:
        return [pairs.told(gate, [(own, value)])
                for gate, own, value in zip(self._gates, self._values, values, strict=True)]  # fmt: skip
