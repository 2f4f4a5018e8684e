"""Remedies that are broken in ways in which remedies break, from a drawn update on. Entry points of a package that the
benchmark makes name them `sabotage.NAME.ONSET`; they act through the public seams only, as a stranger's would."""

from __future__ import annotations

from typing import Any

from benchmarks.guard_sabotages import data, inference, loss, model, optimizer, side
from benchmarks.guard_sabotages.switch import TABLE, made

__all__ = ["TABLE", "data", "inference", "loss", "model", "optimizer", "side"]


def __getattr__(name: str) -> Any:
    """The remedy class of `NAME__ONSET`, for entry points."""
    fault, sign, onset = name.rpartition("__")
    if not sign or fault not in TABLE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return made(TABLE[fault], int(onset))
