"""The page of a sweep: step against rate, step against peak, a row for each value, what fits."""

from __future__ import annotations

from typing import Any

from gobrrr.report.forms.formats import View
from gobrrr.report.html.curve_chart import Axis, CurvePoint, curve
from gobrrr.report.memory import sweep
from gobrrr.report.told.blocks import Fact, Table, facts
from gobrrr.system.escape import cleaned_command
from gobrrr.trial.receipt.swept import Swept
from gobrrr.units import duration, size


def parts(found: Swept, view: View) -> dict[str, Any]:
    """Everything that the template needs."""
    told = [block for group in sweep.blocks(found) for block in group]
    rate = Axis("samples per second", lambda value: f"{value:,.4g}")
    steps, bytes_ = Axis("step, 99th percentile", duration), Axis("peak of memory", size, is_binary=True)
    timed = [(point.value, point, sweep.mark(found, point)) for point in found.points if not point.failed]
    latency = [CurvePoint(name, found.samples_per_s(point) or 0.0, point.p99_ns or 0.0, mark)
               for name, point, mark in timed]  # fmt: skip
    memory = sorted((CurvePoint(name, point.step_ns or 0.0, point.peak_bytes or 0.0, mark)
                     for name, point, mark in timed), key=lambda each: each.across)  # fmt: skip
    fit = [CurvePoint(point.value, point.number, point.peak_bytes or 0.0) for point in found.points]
    is_timed = bool(found.best)
    return {
        "sentence": sweep.headline(found), "sure": found.complete and bool(found.points),
        "facts": [block for block in told if isinstance(block, Fact)],
        "table": next(block for block in told if isinstance(block, Table)),
        "curves": [drawn for drawn in (
            ("Latency against throughput", curve(latency, rate, steps) if is_timed and found.is_batch else ""),
            ("Time against memory", curve(memory, Axis("step, median", duration), bytes_) if is_timed else ""),
            ("Memory", "" if is_timed else curve(fit, Axis(found.setting, lambda value: f"{value:,g}"), bytes_)),
        ) if drawn[1]],
        "about": facts([("program", [cleaned_command(found.command)]), ("machine", [found.machine]),
                        ("varied", [f"{found.setting}: {found.where}"]), ("took", [f"{found.seconds / 60:.1f} min"])]),
    }  # fmt: skip
