"""The rows of a part as a table that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import planted_table
from benchmarks.gpu import planting, tunings
from benchmarks.gpu.rows import Row
from benchmarks.planted_scoring import meets
from gobrrr.units import duration


def table(found: dict[str, Any]) -> str:
    """A part's result: its head, a line or more for each row, what was left out."""
    head = f"# Part {found['part']}: {found['title']}\n\n{found['device']}, driver {found['driver'] or 'none'}, torch "
    head += f"{found['torch']}, gobrrr {found['gobrrr']}, {found['date']}\n"
    lines = [line for row in found["rows"] for line in _lines(row)]
    if any("ratio" in row for row in found["rows"]):
        lines += ["", *_bars(found["bars"])]
    return "\n".join([head, *lines]) + "\n"


def _lines(row: Row) -> list[str]:
    """Of one row, by what it has."""
    if undone := row.get("failed") or row.get("left_out"):
        return [f"{row['name']:36s} {'FAILED ' if 'failed' in row else ''}{undone}"]
    kinds = {"outcomes": _tests, "ceilings": _ceilings, "ratio": _planted, "trials": _tuned, "alone": _alone,
             "step_ms": _traced, "cost": _watched, "lab": _lab}  # fmt: skip
    return next(tell(row) for key, tell in kinds.items() if key in row)


def _lab(row: Row) -> list[str]:
    return [f"{row['name']:24s} {row['lab']:14s} {row['told']}  (published: {row['published']})"]


def _tests(row: Row) -> list[str]:
    return [f"{outcome:8s} {name}" for name, outcome in row["outcomes"].items()] or ["no test ran"]


def _ceilings(row: Row) -> list[str]:
    if not row["ceilings"]:
        return ["ceilings: no device"]
    return [f"{c['name']:12s} {c['measured'] / 1e12:9.3f} T/s  sheet {_of(c['sheet'], 1e12)}  {_share(c['share'])}  "
            f"{c['doubt']}".rstrip() for c in row["ceilings"]]  # fmt: skip


def _planted(row: Row) -> list[str]:
    watched = planting.watching(row)
    text = f"{row['name']:20s} {row['code']} {duration(row['sick_ns'])} / {duration(row['healthy_ns'])} "
    text += f"= {row['ratio']:.2f}x  watched {_of(watched, 1)}x  "
    if not row["counts"]:
        return [text + "not scored on a CPU, or tiny"]
    entry = {**row, "false_healthy": row.get("false_healthy", row["loud_healthy"])}
    return [text + "  ".join([*planted_table._told(entry), f"twin: {planted_table._twin(entry)}"])]


def _bars(bars: dict[str, Any]) -> list[str]:
    return [f"{'met   ' if meets(name, bar['share']) else 'MISSED'} {name}: {_share(bar['share'])} of {bar['of']}, "
            f"bar {bar['bar']:.0%}" if bar["of"] else f"{name}: nothing was scored"
            for name, bar in bars.items()]  # fmt: skip


def _tuned(row: Row) -> list[str]:
    kept = ", ".join(row["kept"]) or "nothing"
    published, what = tunings.PUBLISHED.get(row["name"].removeprefix("tune "), (None, ""))
    beside = f"; published {published:.2f}x ({what})" if published else ""
    tried = [f"    {' + '.join(t['remedies'])}: {t['verdict']} {_times(t['speedup'])}, guard {t['guard']} {t['reason']}"
             for t in row["trials"]]  # fmt: skip
    notes = [f"    {note}" for note in row["notes"] if "cannot be applied" in note]
    return [f"{row['name']}: {_times(row['speedup'])}, guard {row['guard']}, kept {kept}{beside}", *tried, *notes]


def _alone(row: Row) -> list[str]:
    return [
        f"    {pick} alone: {a['verdict']} {_times(a['speedup'])} {a['reason']}" for pick, a in row["alone"].items()
    ]


def _traced(row: Row) -> list[str]:
    clock = row["clock_ms"] if row["events_ms"] is None else row["events_ms"]
    step = f"step {row['step_ms']:.2f} ms, by hand {row['step_by_hand_ms']:.2f}, by the clock {clock:.2f}"
    busy = f"busy {_share(row['busy'])}, by hand {_share(row['busy_by_hand'])}"
    return [f"{row['name']:28s} {step}  {busy}  {', '.join(row['findings']) or 'no finding'}"]


def _watched(row: Row) -> list[str]:
    cost = row["cost"]
    return [f"{row['name']:20s} {cost['median']:.2%} ({cost['low']:.2%} to {cost['high']:.2%}) of a step of "
            f"{duration(row['step_ns'])}, {row['cycles']} cycles"]  # fmt: skip


def _times(figures: Sequence[float] | None) -> str:
    return f"{figures[0]:.2f}x ({figures[1]:.2f} to {figures[2]:.2f})" if figures else "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _of(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:.3g}"
