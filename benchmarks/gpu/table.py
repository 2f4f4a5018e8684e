"""The rows of a part as a table that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import planted_table
from benchmarks.gpu import planting
from benchmarks.gpu.rows import Row
from gobrrr.units import duration


def table(found: dict[str, Any]) -> str:
    """A part's result: its head, a line or more for each row, what was left out."""
    head = f"# Part {found['part']}: {found['title']}\n\n{found['device']}, driver {found['driver'] or 'none'}, torch "
    head += f"{found['torch']}, gobrrr {found['gobrrr']}, {found['date']}\n"
    return "\n".join([head, *(line for row in found["rows"] for line in _lines(row))])


def _lines(row: Row) -> list[str]:
    undone = row.get("failed") or row.get("left_out")
    if undone:
        return [f"{row['name']:36s} {'FAILED ' if 'failed' in row else ''}{undone}"]
    kinds = {"ordinary": _ordinary, "outcomes": _tests, "ceilings": _ceilings, "ratio": _planted, "edit": _proven,
             "trials": _tuned, "step_by_hand_ms": _traced, "cost": _watched, "lab": _lab,
             "forms": _forms, "ddp": _ranks, "promises": _promises}  # fmt: skip
    return next(tell(row) for key, tell in kinds.items() if key in row)


def _ordinary(row: Row) -> list[str]:
    right = "  ".join(f"{name}: {'yes' if row[key] else 'NO'}" for name, key in (
        ("headline", "headline"), ("line", "placed"), ("loop", "loop"), ("step", "steps"),
        ("same losses", "watched_is_plain"),
    ))  # fmt: skip
    step = f"{duration(row['step_ns'])} (clock {duration(row['clock_ns'])}), cured by hand {row['ratio_by_hand']:.2f}x"
    return [f"{row['name']:18s} {row['top'] or 'no finding':10s} {right}", f"    step {step}", *_promises(row)[1:]]


def _promises(row: Row) -> list[str]:
    lines = [row["name"]]
    for each in row["promises"]:
        made = " to ".join(duration(ns) for ns in each["promised_ns"]) if each["promised_ns"] else "nothing promised"
        lines.append(f"    {each['of']}: {made}; came {duration(each['came_ns'])}")
    return lines


def _proven(row: Row) -> list[str]:
    said = row.get("spent") or f"{row['verdict']} {_times(row['speedup'])}, guard {row['guard']} {row['reason']}"
    return [f"{row['name']}: {said}"]


def _forms(row: Row) -> list[str]:
    lines = [f"{row['name']}  {row.get('note', '')}".rstrip()]
    for each in row["forms"]:
        if each["ms"] is None:
            lines.append(f"    {each['name']:28s} not here: {each.get('why_not', '')}")
            continue
        published = f"  published {each['published']:.2f}x" if each["published"] else ""
        error = f"  error {each['error']:.1e}" if each["error"] else ""
        tera = f"  {each['tera']:.1f} T/s" if each.get("tera") else ""
        lines.append(f"    {each['name']:28s} {each['ms']:9.4f} ms  {_of(each['ratio'], 1)}x{published}{tera}{error}")
    return lines


def _ranks(row: Row) -> list[str]:
    late, same = ("yes" if row[key] else "NO" for key in ("rank_named", "watched_is_plain"))
    steps = f"step {row['step_ms']:.2f} ms, clock {row['clock_ms']:.2f}, watched {row['watched_clock_ms']:.2f}"
    return [f"{row['name']:26s} by {row['backend']}: {steps}; late named: {late}; same losses: {same}"]


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


def _tuned(row: Row) -> list[str]:
    kept = ", ".join(row["kept"]) or "nothing"
    tried = [f"    {' + '.join(t['remedies'])}: {t['verdict']} {_times(t['speedup'])}, guard {t['guard']} {t['reason']}"
             for t in row["trials"]]  # fmt: skip
    notes = [f"    {note}" for note in (*row["notes"], row.get("spent", "")) if note]
    return [f"{row['name']}: {_times(row['speedup'])}, guard {row['guard']}, kept {kept}", *tried, *notes]


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
