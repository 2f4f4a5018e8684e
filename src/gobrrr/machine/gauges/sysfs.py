"""Gauges that Linux itself shows as files: AMD's devices (amdgpu) and the energy of processors (powercap, RAPL)."""

from __future__ import annotations

from pathlib import Path

from gobrrr.machine.gauges.readings import POWER, GaugedDevice, Link, Reading

SYS = Path("/sys")
NEAR_CAP = 0.98
"""Share of its power limit from which an AMD device counts as capped: the kernel names no reasons. Proposed."""


class AmdGpu:
    """Devices of the amdgpu driver."""

    def __init__(self, root: Path = SYS) -> None:
        cards = sorted(root.glob("class/drm/card[0-9]*/device/gpu_busy_percent"))
        self._folders = [card.parent for card in cards]

    def devices(self) -> tuple[GaugedDevice, ...]:
        """Describe each device."""
        return tuple(map(self._device, self._folders))

    def read(self, ours: object) -> tuple[Reading, ...]:
        """Read each device's gauges; which processes use it, the kernel does not say."""
        return tuple(map(self._reading, self._folders))

    def _device(self, folder: Path) -> GaugedDevice:
        limit, default = (_number(_monitor(folder) / name, 1e-6) for name in ("power1_cap", "power1_cap_default"))
        name = _text(folder / "product_name") or "AMD device"
        memory = _number(folder / "mem_info_vram_total")
        return GaugedDevice(name, int(memory) if memory is not None else None, limit, default)

    def _reading(self, folder: Path) -> Reading:
        monitor = _monitor(folder)
        used, clock, heat = (
            _number(path, factor)
            for path, factor in (
                (folder / "mem_info_vram_used", 1.0), (monitor / "freq1_input", 1e-6), (monitor / "temp1_input", 1e-3),
            )
        )  # fmt: skip
        watts = next(filter(None, (_number(monitor / f"power1_{name}", 1e-6) for name in ("average", "input"))), None)
        limit = _number(monitor / "power1_cap", 1e-6)
        capped = watts is not None and limit is not None and watts >= NEAR_CAP * limit > 0
        return Reading(
            busy=_number(folder / "gpu_busy_percent", 1e-2), used=None if used is None else int(used), watts=watts,
            clock_mhz=None if clock is None else int(clock), why=(POWER,) if capped else (),
            celsius=None if heat is None else int(heat), link=_link(folder),
        )  # fmt: skip


class Rapl:
    """Energy of the processor's packages in joules since the first look."""

    def __init__(self, root: Path = SYS) -> None:
        zones = sorted(root.glob("class/powercap/intel-rapl:[0-9]*"))
        whole = [zone for zone in zones if zone.name.count(":") == 1]
        parts = [zone for zone in whole if _text(zone / "name") != "psys"]  # which holds the packages
        packages = [zone for zone in parts if _number(zone / "energy_uj") is not None]
        self._last = {zone: _number(zone / "energy_uj") or 0.0 for zone in packages}
        self._joules = 0.0

    def __bool__(self) -> bool:
        return bool(self._last)

    def joules(self) -> float | None:
        """Return the sum over packages; None where none may be read."""
        for zone, before in self._last.items():
            now = _number(zone / "energy_uj")
            if now is not None:
                wrapped = now < before  # the counter has begun anew
                around = (_number(zone / "max_energy_range_uj") or 0.0) if wrapped else 0.0
                self._joules += max(0.0, now + around - before) * 1e-6
                self._last[zone] = now
        return self._joules if self._last else None


def _monitor(folder: Path) -> Path:
    return next(iter(sorted(folder.glob("hwmon/hwmon*"))), folder / "hwmon")


def _link(folder: Path) -> Link | None:
    speeds = [_text(folder / f"{which}_link_speed").split(" ")[0] for which in ("current", "max")]
    widths = [_number(folder / f"{which}_link_width") for which in ("current", "max")]
    generations = [{"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}.get(speed) for speed in speeds]
    if not all(widths) or None in generations:
        return None
    return Link(generations[0] or 0, int(widths[0] or 0), generations[1] or 0, int(widths[1] or 0))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:200].strip()
    except OSError:
        return ""


def _number(path: Path, factor: float = 1.0) -> float | None:
    text = _text(path)
    return float(text) * factor if text.isascii() and text.isdecimal() else None
