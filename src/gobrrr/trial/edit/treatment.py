"""Properties of a remedy, or of an edit on trial, that the guard and the referee ask for: the same for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from gobrrr.remedies import registry
from gobrrr.remedies.model import Remedy
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.gate.rule import Gate


@dataclass(frozen=True)
class EditOnTrial:
    """An edit of the program, with what its user accepts; it has the attributes of a Remedy that a judge asks for."""

    edit: ProgramEdit
    accepted: frozenset[str] = frozenset()
    """Keys of words.ACCEPTABLE."""
    renames: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameter of the edited program -> the program's own that it holds, joined along their first dimension."""
    gates: tuple[Gate, ...] = ()
    """The user's own measures, which are held in place of its numbers."""
    late: ClassVar[bool] = False
    judged_without_dropout: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The edit's name."""
        return self.edit.name

    @property
    def safety(self) -> str:
        """Its safety class: by what is accepted."""
        return "order" if self.accepted & {"order", "samples", "random"} else "tolerance"

    @property
    def precision(self) -> str:
        """The lowest precision that is accepted; empty where none is."""
        return "bfloat16" if "precision" in self.accepted else ""

    @property
    def regroups(self) -> bool:
        """Whether samples may come together otherwise."""
        return "samples" in self.accepted


Treatment: TypeAlias = Remedy | EditOnTrial


def treatment(name: str, edits: Mapping[str, EditOnTrial]) -> Treatment:
    """The edit or the remedy of a name. Raises GobrrrError where there is none."""
    return edits.get(name) or registry.remedy(name)
