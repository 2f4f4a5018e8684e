"""Kernels chosen for speed where deterministic ones were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SwitchOff

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class DeterministicOff(Remedy):
    """torch.use_deterministic_algorithms(False) before the first forward. Runs may differ from one another then."""

    name = "deterministic_off"
    title = "switches torch's deterministic mode off"
    safety = "semantic"
    codes = ("BRR308",)
    by_hand = "torch.use_deterministic_algorithms(False)"
    edit = SwitchOff(("use_deterministic_algorithms",))

    def apply(self, seams: Seams) -> None:
        import torch

        def off(module: Any) -> None:
            if torch.are_deterministic_algorithms_enabled():
                warns = torch.is_deterministic_algorithms_warn_only_enabled()
                torch.use_deterministic_algorithms(False)
                seams.undo(lambda: torch.use_deterministic_algorithms(True, warn_only=warns))
                seams.applied(self.name)

        seams.at_model(off)
