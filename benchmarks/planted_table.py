"""The planted bench as a table for people: one row per illness, the bars below."""

from __future__ import annotations

from typing import Any

from benchmarks.planted_scoring import BARS, WAITING, WAITS, meets
from gobrrr.units import duration, size

BAR_TEXT = {
    "named": "the first finding names the illness",
    "placed": "its line is within 3 of a guilty one",
    "saving_inside": "the measured saving lies within [low, ceiling]",
    "false_findings": "healthy twins with a false finding at warning or above",
}
HEAD = ("program", "illness", "sick", "healthy", "ratio", "first finding", "line", "saving: low / true / ceiling",
        "healthy twin", "TraceML")  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """The whole result as Markdown."""
    rows = [_row(entry) for entry in result["entries"]]
    machine = result["machine"]
    parts = [
        f"# Planted illnesses, {result['date']}",
        "",
        f"{machine['name']}, {machine['cores']} cores, load {machine['load']} at the end. "
        + ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "",
        "Steps are medians after the warm-up (means where marked ~) of the plain programs, run in turn without gobrrr; "
        "other processes were at work where the ratio is marked *.",
        "",
        _line(HEAD),
        _line(["---"] * len(HEAD)),
        *(_line(row) for row in rows),
        "",
        *bars(result),
        "",
        "The true saving is the share of the step that the twin does without, of the step in the run that promised: "
        "the machine's speed changes between runs. Taken in milliseconds from the plain runs alone it lies inside in "
        f"{100 * (result['inside_as_measured'] or 0):.1f} %. {_off(result.get('expected_error'))}A twin that "
        "waits for its loader, by a clock outside, is told so rightly.",
        "",
        *result["notes"],
    ]
    return "\n".join(parts) + "\n"


def _off(error: float | None) -> str:
    return "" if error is None else f"What was expected is {100 * error:.0f} % off the true saving (median). "


def bars(result: dict[str, Any]) -> list[str]:
    """One line per bar: what was asked, what was reached."""
    return [_bar(name, result["shares"].get(name), result["counts"].get(name, 0)) for name in BARS]


def _bar(name: str, value: float | None, count: int) -> str:
    asked = f"{'at most' if name == 'false_findings' else 'at least'} {100 * BARS[name]:.0f} %"
    reached = "nothing was measured" if value is None else f"{100 * value:.1f} % of {count}"
    return f"- {'met   ' if meets(name, value) else 'MISSED'} {BAR_TEXT[name]}: {reached} ({asked})"


def _row(entry: dict[str, Any]) -> list[str]:
    if "error" in entry:
        return [entry["name"], entry["code"], entry["error"][:80], *[""] * (len(HEAD) - 3)]
    mean = "~" if entry["statistic"] == "mean" else ""
    truth = [mean + duration(entry["sick_ns"]), mean + duration(entry["healthy_ns"]), _ratio(entry)]
    return [
        entry["name"],
        entry["code"],
        *truth,
        *_told(entry),
        _twin(entry),
        entry.get("traceml", {}).get("kind", "-"),
    ]


def _ratio(entry: dict[str, Any]) -> str:
    return f"{entry['ratio']:.2f}x" + ("" if entry["calm"] else " *")


def _told(entry: dict[str, Any]) -> list[str]:
    sick = entry.get("sick")
    if sick is None:
        return ["not asked", "", ""]
    if not entry["is_ill"]:
        false = ", ".join(entry["false_sick"])
        return [f"{false} (false)" if false else "no illness here: silent", "", ""]
    named = "yes" if sick["named"] else "NO"
    line = ("yes" if sick["placed"] else "NO") + f" {sick['line'] if sick['line'] is not None else '-'}"
    return [f"{named} {sick['top'] or 'none'}", line, _promise(entry, sick)]


def _promise(entry: dict[str, Any], sick: dict[str, Any]) -> str:
    held = "yes" if sick["saving_inside"] else "NO"
    if entry["bytes_illness"]:
        return f"{held} growth {size(entry['growth_bytes'])} per step"
    if sick["saving"] is None:
        return f"NO {duration(entry['saving_here_ns'])} true"
    low, _, ceiling = sick["saving"]
    return f"{held} {duration(low)} / {duration(entry['saving_here_ns'])} / {duration(ceiling)}"


def _twin(entry: dict[str, Any]) -> str:
    if "false_healthy" not in entry:
        return "not asked"
    waits = entry.get("twin_waits", 0.0)
    true = [code for code in entry["loud_healthy"] if code in WAITING] if waits >= WAITS else []
    told = f"waits {waits:.0%}: {', '.join(true)}" if true else "clean"
    return ", ".join(entry["false_healthy"]) or told


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
