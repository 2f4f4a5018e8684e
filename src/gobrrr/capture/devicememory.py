"""How much of the device's memory torch has handed out: it is asked once a second, and what was most in the end. That
waits for no kernel."""

from __future__ import annotations

import sys
from typing import Any

from gobrrr.recording import marks as ev


def most() -> dict[str, Any]:
    """Peak, reserved peak and size of the current device's memory, in bytes; nothing where no device is used."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    try:
        return {
            "device_peak_bytes": int(cuda.max_memory_allocated()),
            "device_reserved_bytes": int(cuda.max_memory_reserved()),
            "device_capacity_bytes": int(cuda.get_device_properties(cuda.current_device()).total_memory),
        }
    except Exception:  # an allocator of the program's own may not tell
        return {}


class Device:
    """Asked no more once torch did not tell. Nothing before the program itself has begun to use the device."""

    def __init__(self, every_ns: int = 1_000_000_000) -> None:
        self._every, self._last, self._known = every_ns, -every_ns, True

    def marks(self, now: int) -> list[tuple[int, int]]:
        """[(mark, bytes)], or nothing where it is too soon or not known."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if not self._known or now - self._last < self._every or cuda is None or not cuda.is_initialized():
            return []
        self._last = now
        try:
            return [(ev.DEVICE, int(cuda.memory_allocated()))]
        except Exception:  # an allocator of the program's own may not tell
            self._known = False
            return []
