"""The lab's experiments that need a device, each with its receipt in benchmarks/results/lab where it is a real one."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.gpu.setting import ROOT, Setting
from gobrrr.machine.measure.store import load_or_measure
from gobrrr_lab import load
from gobrrr_lab.measure.runner import run
from gobrrr_lab.show.text import figure_text

KEPT = ROOT / "benchmarks" / "results" / "lab"


def names() -> list[str]:
    """Of all that need a device."""
    return [name for name, one in load().items() if "device" in one.needs]


def measured(name: str, setting: Setting) -> dict[str, Any]:
    """Verdict and figure; without a device that it cannot run here."""
    one = load()[name]
    (result,) = run({name: one}, load_or_measure(), tiny=not setting.real, folder=KEPT / setting.name.replace(" ", "-"))
    told = figure_text(result.found.factor, one.unit) if result.found else result.why_not
    return {"lab": result.verdict, "told": told, "published": one.published, "result": msgspec.to_builtins(result)}
