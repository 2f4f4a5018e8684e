"""NVIDIA's gauges through NVML (nvidia-ml-py): each call may be missing, refused or not supported by a device."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Set
from functools import partial
from typing import Any

from gobrrr.machine.gauges.gpm import Activity
from gobrrr.machine.gauges.readings import BRAKE, POWER, THERMAL, GaugedDevice, Link, Reading

REASONS = {0x04: POWER, 0x08: BRAKE, 0x20: THERMAL, 0x40: THERMAL, 0x80: BRAKE}
"""Bits of nvmlClocksEventReasons (nvml.h): software power cap, hardware slowdown, both thermal ones, power brake."""
MANY = 2**63
"""Counters that are not told come as the largest number of their width."""


class Nvml:
    """All devices of the driver. Raises ImportError without nvidia-ml-py, another Exception without a driver."""

    def __init__(self) -> None:
        self._ml: Any = importlib.import_module("pynvml")
        self._ml.nvmlInit()
        found = (self._ask("nvmlDeviceGetHandleByIndex", i) for i in range(self._ml.nvmlDeviceGetCount()))
        self._handles = [handle for handle in found if handle is not None]  # one that is lost leaves the others
        self._activities = list(map(self._activity, self._handles))

    def devices(self) -> tuple[GaugedDevice, ...]:
        """Describe each device."""
        return tuple(map(self._device, self._handles))

    def read(self, ours: Set[int] | None) -> tuple[Reading, ...]:
        """Read each device's gauges; with the program's process ids also who holds its memory, and its link."""
        return tuple(map(partial(self._reading, ours), self._handles, self._activities))

    def _device(self, handle: Any) -> GaugedDevice:
        ml, ask = self._ml, self._ask
        name = ask("nvmlDeviceGetName", handle)
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        mode = ask("nvmlDeviceGetPersistenceMode", handle)
        return GaugedDevice(
            name.decode(errors="replace") if isinstance(name, bytes) else str(name or "NVIDIA device"),
            _counted(getattr(memory, "total", None)),
            _scaled(ask("nvmlDeviceGetEnforcedPowerLimit", handle), 1e-3),
            _scaled(ask("nvmlDeviceGetPowerManagementDefaultLimit", handle), 1e-3),
            _counted(ask("nvmlDeviceGetMaxClockInfo", handle, getattr(ml, "NVML_CLOCK_SM", 1))),
            None if mode is None else bool(mode),
        )

    def _activity(self, handle: Any) -> Activity | None:
        try:
            return Activity(self._ml, handle)
        except Exception:  # older than Hopper, or counters that need root
            return None

    def _reading(self, ours: Set[int] | None, handle: Any, activity: Activity | None) -> Reading:
        ask = self._ask
        use = ask("nvmlDeviceGetUtilizationRates", handle)
        version = getattr(self._ml, "nvmlMemory_v2", None)  # without what the driver keeps for itself
        memory = ask("nvmlDeviceGetMemoryInfo", handle, version) or ask("nvmlDeviceGetMemoryInfo", handle)
        bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
        seldom = self._held(handle, ours) if ours is not None else {}
        sm, tensor = self._active(activity) if ours is not None else (None, None)
        return Reading(
            busy=_scaled(getattr(use, "gpu", None), 1e-2),
            sm=sm,
            tensor=tensor,
            used=_counted(getattr(memory, "used", None)),
            watts=_scaled(ask("nvmlDeviceGetPowerUsage", handle), 1e-3),
            joules=_scaled(ask("nvmlDeviceGetTotalEnergyConsumption", handle), 1e-3),
            clock_mhz=_counted(ask("nvmlDeviceGetClockInfo", handle, getattr(self._ml, "NVML_CLOCK_SM", 1))),
            why=tuple(dict.fromkeys(reason for bit, reason in REASONS.items() if bits & bit)),
            celsius=_counted(ask("nvmlDeviceGetTemperature", handle, 0)),
            **seldom,
        )

    def _active(self, activity: Activity | None) -> tuple[float | None, float | None]:
        try:
            return activity.read() if activity is not None else (None, None)
        except Exception:  # as in _ask
            return None, None

    def _held(self, handle: Any, ours: Set[int]) -> dict[str, Any]:
        """Return what is asked once a second: memory by process, the link, errors."""
        ask = self._ask
        names = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth")
        link = [found for name in names if (found := _counted(ask(f"nvmlDeviceGet{name}", handle))) is not None]
        kinds = ("Compute", "Graphics")
        processes = [each for kind in kinds for each in ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) or ()]
        held = {each.pid: size for each in processes if (size := _counted(each.usedGpuMemory)) is not None}
        known = any(pid in ours for pid in held)  # in a container the driver names the host's numbers, or nobody
        return {
            "ours": sum(size for pid, size in held.items() if pid in ours) if known else None,
            "others": sum(size for pid, size in held.items() if pid not in ours) if known else None,
            "link": Link(*link) if len(link) == len(names) else None,
            "errors": _counted(ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0)),
        }

    def _ask(self, name: str, *arguments: Any) -> Any:
        call: Callable[..., Any] | None = getattr(self._ml, name, None)
        try:
            return call(*arguments) if call is not None else None
        except Exception:  # not supported, no permission, fallen off the bus: this gauge is not there
            return None


def _counted(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and 0 <= value < MANY else None


def _scaled(value: Any, factor: float) -> float | None:
    number = _counted(value)
    return None if number is None else number * factor
