"""Anomaly detection that was left on is switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SwitchOff

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class AnomalyOff(Remedy):
    """torch.autograd.set_detect_anomaly(False) before the first forward, after the program has switched it on."""

    name = "anomaly_off"
    title = "switches torch.autograd's anomaly detection off"
    codes = ("BRR307",)
    by_hand = "torch.autograd.set_detect_anomaly(False)"
    edit = SwitchOff(("set_detect_anomaly", "detect_anomaly"))

    def apply(self, seams: Seams) -> None:
        import torch

        def off(module: Any) -> None:
            if torch.is_anomaly_enabled():
                checks = torch.is_anomaly_check_nan_enabled()
                torch.autograd.set_detect_anomaly(False)
                seams.undo(lambda: torch.autograd.set_detect_anomaly(True, checks))
                seams.applied(self.name)

        seams.at_model(off)


REMEDY = AnomalyOff()
