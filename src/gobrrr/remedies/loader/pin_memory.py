"""Batches in page-locked memory, which a GPU reads without a detour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class PinMemory(Remedy):
    """pin_memory=True for every DataLoader; needs a CUDA device."""

    name = "pin_memory"
    title = "hands batches over in page-locked memory"
    place = "loader"
    codes = ("BRR502",)
    by_hand = "DataLoader(..., pin_memory=True); x = x.to(device, non_blocking=True)"
    edit = SetKeyword(("DataLoader",), "pin_memory", "True", positional=7)

    def probe(self) -> str:
        import torch

        return "" if torch.cuda.is_available() else "there is no CUDA device to copy to"

    def apply(self, seams: Seams) -> None:
        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            if kwargs.get("pin_memory"):
                return kwargs
            seams.applied(self.name)
            return {**kwargs, "pin_memory": True}

        seams.at_loader(change)
