"""The page of a comparison: both steps on one scale, what became faster and slower, and every op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gobrrr import units
from gobrrr.ledger.comparison import Comparison, OpRatio
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part
from gobrrr.report.html.findings_page import page_of
from gobrrr.report.html.report_page import MEANS, kind_of
from gobrrr.report.runs.comparison import accounts, calls, line, named, ops, signed

MOST_BARS, MOST_OPS = 12, 200
"""Ops that are drawn as faster or slower, and that are listed; all are in the data."""
SMALLEST = 1e-3
"""Share of the larger step below which a difference is not drawn."""


def parts(found: Comparison, view: object = None) -> dict[str, Any]:
    """Everything that the template needs."""
    sure = (found.low > 1 or found.high < 1) and found.verdict.startswith(("A is ", "B is "))
    rows = accounts(found)
    used = {kind_of(name) for name, _, _ in rows}
    return {
        "found": found, "sure": sure, "sides": _sides(found),
        "accounts": _accounts(rows),
        "totals": [units.duration(sum(ns)) for ns in ([a for _, a, _ in rows], [b for _, _, b in rows])],
        "change": signed(sum(b - a for _, a, b in rows)),
        "key": [(charts.swatch(kind), words) for kind, words in MEANS.items() if kind in used],
        "codes": [(label, [(code, page_of(code)) for code in codes])
                  for label, codes in (("A", found.vanished), ("B", found.appeared)) if codes],
        "changed": _changed(found), "ops": ops(found, MOST_OPS), "num_ops": len(found.ops),
        "most_ops": MOST_OPS,
    }  # fmt: skip


def _sides(found: Comparison) -> list[dict[str, Any]]:
    """Each with its step as a bar; both on the scale of the longer one."""
    longest = max(found.a.step_ns, found.b.step_ns)
    sides = []
    for label, side in (("A", found.a), ("B", found.b)):
        known = [Part(name, ns, kind_of(name), f"{name.replace('_', ' ')}: {units.duration(ns)}")
                 for name, ns in side.accounts]  # fmt: skip
        chart = charts.stack(known, f"The step of {label} by account", longest)
        sides.append({"label": label, "line": line(side), "it": side, "chart": chart})
    return sides


def _accounts(rows: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    most = max((max(a, b) for _, a, b in rows), default=1.0)
    found = []
    for name, a, b in rows:
        kind, told = kind_of(name), name.replace("_", " ")
        bars = [charts.share_bar([(ns / most, kind)], f"{told} of {label}: {units.duration(ns)}")
                for label, ns in (("A", a), ("B", b))]  # fmt: skip
        found.append({"name": told, "swatch": charts.swatch(kind), "a": units.duration(a), "b": units.duration(b),
                      "change": signed(b - a), "bars": bars})  # fmt: skip
    return found


def _changed(found: Comparison) -> list[dict[str, Any]]:
    """Return what B does faster and slower than A, the largest differences first, all on one scale."""
    least = SMALLEST * max(found.a.step_ns, found.b.step_ns)
    told = [op for op in found.ops if abs(op.delta) > least]
    most = max((abs(op.delta) for op in told), default=1.0)
    groups = (("Faster in B", "work", [op for op in told if op.delta < 0]),
              ("Slower in B", "idle", [op for op in told if op.delta > 0]))  # fmt: skip
    return [
        {"title": title, "more": max(0, len(ops) - MOST_BARS), "rows": [
            {"name": named(op), "shapes": op.shapes, "change": signed(op.delta),
             "ratio": _ratio(op), "calls": calls(op),
             "bar": charts.share_bar([(abs(op.delta) / most, kind)], f"{named(op)}: {signed(op.delta)}")}
            for op in ops[:MOST_BARS]]}
        for title, kind, ops in groups if ops
    ]  # fmt: skip


def _ratio(op: OpRatio) -> str:
    return "only A" if op.b is None else "only B" if op.a is None else "" if op.ratio is None else f"{op.ratio:.2f}x"
