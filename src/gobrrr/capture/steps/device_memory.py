"""How much of the device's memory torch has handed out: it is asked once a second, and what was most in the end. That
waits for no kernel."""

from __future__ import annotations

import sys
from typing import Any

from gobrrr.recording.model import event_kinds as ev


def cuda_in_use() -> Any:
    """torch.cuda, once the program itself has begun to use it; else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def name() -> str | None:
    """Return the name of the device that the program works on; None before it has begun to use one: to ask would begin
    it, and a child that is forked later could not."""
    cuda = cuda_in_use()
    return str(cuda.get_device_name()) if cuda is not None else None


def in_use() -> list[int]:
    """Numbers of the devices that this process has begun to use: to ask another would begin it."""
    if (cuda := cuda_in_use()) is None:
        return []
    begun = getattr(sys.modules["torch"]._C, "_cuda_hasPrimaryContext", None)
    if begun is None:
        return [int(cuda.current_device())]
    return [number for number in range(cuda.device_count()) if begun(number)]


def most() -> dict[str, Any]:
    """Peak, reserved peak and size of the memory of the device that holds most, in bytes, and how many of its
    allocations failed; nothing where none is used, or its allocator does not tell."""
    cuda, devices = cuda_in_use(), in_use()
    try:
        peaks = {number: int(cuda.max_memory_allocated(number)) for number in devices}
        fullest = max(peaks, key=lambda number: peaks[number], default=-1)
        if not peaks.get(fullest):
            return {}
        return {
            "device_peak_bytes": peaks[fullest],
            "device_reserved_bytes": int(cuda.max_memory_reserved(fullest)),
            "device_capacity_bytes": int(cuda.get_device_properties(fullest).total_memory),
            "device_failed": int(cuda.memory_stats(fullest).get("num_ooms", 0)),
        }
    except Exception:  # an allocator of the program's own may not tell
        return {}


class Device:
    """Asked no more once torch did not tell. Nothing before the program itself has begun to use the device."""

    def __init__(self, every_ns: int = 1_000_000_000) -> None:
        self._every, self._last, self._known = every_ns, -every_ns, True

    def marks(self, now: int) -> list[tuple[int, int]]:
        """[(mark, bytes)], or nothing where it is too soon or not known."""
        if not self._known or now - self._last < self._every or (cuda := cuda_in_use()) is None:
            return []
        self._last, devices = now, in_use()
        try:
            return [(ev.DEVICE, sum(int(cuda.memory_allocated(number)) for number in devices))]
        except Exception:  # an allocator of the program's own may not tell
            self._known = False
            return []
