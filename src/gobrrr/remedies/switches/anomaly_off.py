"""Anomaly detection that was left on is switched off."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SwitchOff

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class AnomalyOff(Remedy):
    """torch.autograd's anomaly detection stays off whenever the program switches it on; afterwards it is what the
    program said last."""

    name = "anomaly_off"
    title = "switches torch.autograd's anomaly detection off"
    codes = ("BRR307",)
    unseen = (
        "a NaN in backward is no longer refused with an error: a program that catches it and passes the step over "
        "takes that step"
    )
    by_hand = "torch.autograd.set_detect_anomaly(False)"
    edit = SwitchOff(("set_detect_anomaly",))  # detect_anomaly's argument is another: whether it looks for NaN

    def apply(self, seams: Seams) -> None:
        import torch

        plain = torch.set_anomaly_enabled
        said: dict[str, Any] = {
            "enabled": torch.is_anomaly_enabled(),
            "check_nan": torch.is_anomaly_check_nan_enabled(),
        }

        @functools.wraps(plain)
        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            said.update(enabled=enabled, check_nan=check_nan)
            plain(False, check_nan)
            if enabled:
                seams.applied(self.name)

        seams.undo(lambda: plain(**said))
        seams.replace(torch, "set_anomaly_enabled", set_anomaly_enabled)
        set_anomaly_enabled(**said)
