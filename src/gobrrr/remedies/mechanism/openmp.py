"""Remedies that are variables of OpenMP: set before the process starts, they leave every number as it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class OpenMP(Remedy):
    """Subclasses name the variables, and say what they do."""

    safety = "exact"
    place = "environment"
    variables: ClassVar[dict[str, str]] = {}
    does: ClassVar[str] = ""

    def probe(self) -> str:
        import torch

        if "OpenMP" not in torch.__config__.parallel_info():
            return "this torch computes without OpenMP"
        return ""

    def environment(self) -> dict[str, str]:
        return dict(self.variables)

    def apply(self, seams: Seams) -> None:
        if all(os.environ.get(name) == value for name, value in self.variables.items()):
            seams.applied(self.name, self.does)
