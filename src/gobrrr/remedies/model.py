"""The Remedy noun. Third parties subclass it; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from gobrrr import rules
from gobrrr.capture.process.config import said_in
from gobrrr.remedies.edits.forms import Edit
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.rules.model.finding import Rehearsed, Saving
from gobrrr.rules.verdict.report import Report

SAFETY = ("exact", "tolerance", "order", "semantic")
"""exact: bitwise the same numbers; tolerance: the same up to rounding; order: the same samples in another order or with
other draws; semantic: another computation, which is only tried when its name is given."""
PLACES = ("environment", "flags", "optimizer", "model", "loader")
"""Places where remedies act, in the order in which they are put together."""


_rules = cache(rules.load)


def played(name: str, report: Report) -> Rehearsed | None:
    """Return the result of playing the run's own ops with a remedy or an edit; None where they were not played."""
    everything = (*report.rehearsed, *(r for f in report.findings for r in f.rehearsed))
    return next((r for r in everything if r.remedy == name), None)


class Remedy:
    """One remedy. Subclasses set the class attributes and override what they need."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One line for people."""
    safety: ClassVar[str] = "exact"
    place: ClassVar[str] = "flags"
    conflicts: ClassVar[tuple[str, ...]] = ()
    overlaps: ClassVar[tuple[str, ...]] = ()
    """Remedies that bring the same and leave it nothing to do: both are looked at, and one goes into a combination."""
    serves: ClassVar[str] = ""
    """training or inference where it serves nothing else."""
    late: ClassVar[bool] = False
    """It may take hold after the first step, in an evaluation say; who does not and has not by then is out."""
    precision: ClassVar[str] = ""
    """bfloat16, float16 or tf32 where it lowers the precision: then its own rounding is what the guard allows."""
    saves_memory: ClassVar[bool] = False
    """It may lower the peak of a step's memory: tried whatever the findings say where that is the objective."""
    judged_without_dropout: ClassVar[bool] = False
    """It gives the model the same data and makes dropout draw other masks: what counts is what comes without any."""
    regroups: ClassVar[bool] = False
    """It brings samples of like length together, and so those that are in the data twice, which more looks see then."""
    unseen: ClassVar[str] = ""
    """Changes that no check of the numbers can see, said where the remedy is kept."""
    takes: ClassVar[dict[str, tuple[int, int]]] = {}
    """Options that it may be given: whole numbers, with the least and the most of each."""
    by_hand: ClassVar[str] = ""
    """The code that a person would write."""
    edit: ClassVar[Edit | None] = None
    """The same as a change of source, where its place can be found there."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Findings that call for it: the rules of ours name their remedies."""
        return tuple(code for code, rule in _rules().items() if self.name in rule.remedies)

    def probe(self) -> str:
        """Say why this machine or build cannot; empty where it can. Called in the program's process; torch is there."""
        return ""

    def predicts(self, report: Report) -> Saving:
        """Return the ns that it may save of this program's step, from the report's findings and facts; nothing where no
        finding calls for it: then it is tried only by name."""
        if played := self.played(report):
            return played.saving
        called_for = [f.saving for f in report.findings if f.code in self.codes]
        wall = float(report.step.plain_wall_ns)
        return Saving(
            max((s.low_ns for s in called_for), default=0.0), max((s.expected_ns for s in called_for), default=0.0),
            min(wall, sum(s.ceiling_ns for s in called_for)),
        )  # fmt: skip

    def played(self, report: Report) -> Rehearsed | None:
        """Return the result of playing the run's own ops with it; None where they were not played."""
        return played(self.name, report)

    def is_pointless(self, report: Report) -> bool:
        """Whether nothing in this program can be changed by it, so that it is tried only when its name is given."""
        return self.serves not in ("", report.step.kind)

    def options(self, report: Report) -> dict[str, int]:
        """Return the options for this program, by the report's figures; none where they say nothing."""
        return {}

    def option(self, name: str) -> int | None:
        """Return the option's value in the program's process; None where none was given."""
        return said_in(self.variable(name))

    def variable(self, option: str) -> str:
        """Name the environment variable that carries an option into the program's process."""
        return f"GOBRRR_{self.name}_{option}".upper()

    def change_of_source(self, options: Mapping[str, int]) -> Edit | None:
        """`edit`, as it is with these options."""
        return self.edit

    def environment(self) -> dict[str, str]:
        """Variables that must be set before the process starts."""
        return {}

    def apply(self, seams: Seams) -> None:
        """Register at the seams; whatever is changed is undone through `seams.undo`."""
        raise NotImplementedError
