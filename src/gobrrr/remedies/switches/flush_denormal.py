"""Values too small for a normal float become zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class FlushDenormal(Remedy):
    """torch.set_flush_denormal(True): another computation for values below 1e-38."""

    name = "flush_denormal"
    title = "treats values below 1e-38 as zero: arithmetic on them takes a hundred times as long"
    safety = "semantic"
    codes = ("BRR310",)
    by_hand = "torch.set_flush_denormal(True)"
    edit = AddStatement("torch.set_flush_denormal(True)")

    def apply(self, seams: Seams) -> None:
        import torch

        if torch.set_flush_denormal(True):
            seams.undo(lambda: torch.set_flush_denormal(False))
            seams.applied(self.name)
