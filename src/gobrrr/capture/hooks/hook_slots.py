"""Where torch leaves room for a watcher: the table of its optimizer hooks, and how its profilers start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def starters() -> list[tuple[Any, str]]:
    """The methods by which torch's profilers start."""
    from torch.autograd import profiler

    legacy = sys.modules.get("torch.autograd.profiler_legacy")
    found = [(profiler.profile, "_prepare_trace"), (profiler.emit_nvtx, "__enter__"), (profiler.emit_itt, "__enter__")]
    return [*found, (legacy.profile, "_start_trace")] if legacy is not None else found


class Seat:
    """One of torch's global optimizer hooks. Another takes its seat while torch iterates over the table: its size and
    order stay."""

    def __init__(self, register: Callable[[Any], Any], own: Callable[..., None]) -> None:
        self.own = own
        self.handle = register(own)

    def becomes(self, hook: Callable[..., None]) -> None:
        """Call this one from now on, if the seat is still there."""
        seats = self.handle.hooks_dict_ref()
        if seats is not None and self.handle.id in seats:
            seats[self.handle.id] = hook


def nothing(*_: Any) -> None:
    """Do nothing: stands in during a rest for a hook that may not leave its place."""
