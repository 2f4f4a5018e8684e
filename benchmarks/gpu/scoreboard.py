"""The bars that a device must meet, of all rows that were kept on it: asked, found, rows counted; and each promise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.gpu import planting
from benchmarks.gpu.rows import Row
from benchmarks.gpu.tunings import GREEN
from benchmarks.planted_scoring import meets
from gobrrr.units import duration

OF = 12
UNJUDGED = "the time was spent"
INSIDE, MEAN, MOST, NEAR = 0.9, 1.8, 0.01, 0.1


def board(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Per bar: `met` is null where nothing ran, and where too few rows did to say that it is met."""
    counting = [row for row in rows if row.get("counts") and "failed" not in row]
    ordinary = [row for row in counting if "ordinary" in row]
    tuned = [row for row in counting if "tuned" in row]
    ranks = [row for row in counting if "ddp" in row]
    guarded = [row for row in counting if ("remedy" in row or "edit" in row) and _is_judged(row)]
    found = [
        _of("headline true", ordinary, "headline", 11), _of("loop found", ordinary, "loop", OF),
        _of("steps within 10 % of the clock", ordinary, "steps", OF), _of("line within 3", ordinary, "placed", 11),
        _promises(counting), _of("tune confirmed", tuned, "confirmed", 8), _mean(tuned),
        _all("watched = plain", [*ordinary, *ranks], lambda row: row["watched_is_plain"], OF),
        _overhead([row for row in counting if row.get("watched") == "ten ms"]),
        _all("ranks: step within 10 % of the clock", ranks,
             lambda row: abs(row["step_ms"] / row["clock_ms"] - 1) <= NEAR),
        _all("ranks: who is late is named, nobody else", ranks, lambda row: row["rank_named"]),
        _all("remedies and edits: guard green", guarded, lambda row: row["guard"] in GREEN),
    ]  # fmt: skip
    planted = [row for row in counting if "loud_healthy" in row]
    for name, bar in planting.bars(planted).items() if planted else ():
        found.append({"bar": f"planted: {name}", "asked": f"{bar['bar']:.0%}", "rows": bar["of"],
                      "figure": "-" if bar["share"] is None else f"{bar['share']:.0%}",
                      "met": meets(name, bar["share"]) if bar["of"] else None})  # fmt: skip
    return found


def _is_judged(row: Row) -> bool:
    """An edit's row has its reasons itself, a remedy's those of its last trial."""
    return all(UNJUDGED not in each.get("reasons", ()) for each in (row, *row.get("trials", ())[-1:]))


def told(rows: Sequence[Row]) -> list[str]:
    """The board and the promises as lines."""
    words = {True: "met", False: "MISSED", None: "open"}
    lines = [f"{'bar':44s} {'asked':16s} {'figure':18s} {'rows':>4s}"]
    for each in board(rows):
        state = words[each["met"]] if each["rows"] else "not run"
        lines.append(f"{each['bar']:44s} {each['asked']:16s} {each['figure']:18s} {each['rows']:4d}  {state}")
    promises = given(rows)
    if promises:
        lines += ["", f"{'promise':44s} {'expected (interval)':36s} {'came':>9s}  held"]
    for each in promises:
        low, expected, ceiling = map(duration, each["promised_ns"])
        text = f"{expected} ({low} to {ceiling})"
        lines.append(f"{each['of']:44s} {text:36s} {duration(each['came_ns']):>9s}  {'yes' if each['held'] else 'NO'}")
    return lines


def given(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Every promise that was made of a cure that was run, of rows that count."""
    return [each for row in rows if row.get("counts") for each in row.get("promises", ()) if each["promised_ns"]]


def _of(name: str, rows: list[Row], key: str, least: int) -> dict[str, Any]:
    right = sum(bool(row[key]) for row in rows)
    missed = len(rows) - right > OF - least
    met = False if missed else True if right >= least else None
    return {
        "bar": name,
        "asked": f"{least} of {OF}",
        "figure": f"{right} of {len(rows)}",
        "rows": len(rows),
        "met": met,
    }


def _all(name: str, rows: list[Row], right: Callable[[Row], bool], least: int = 1) -> dict[str, Any]:
    good = sum(map(right, rows))
    met = False if good < len(rows) else True if good >= least else None
    return {"bar": name, "asked": "all", "figure": f"{good} of {len(rows)}", "rows": len(rows), "met": met}


def _promises(rows: list[Row]) -> dict[str, Any]:
    made = given(rows)
    share = statistics.fmean(each["held"] for each in made) if made else None
    return {"bar": "promises inside their interval", "asked": f"{INSIDE:.0%}", "rows": len(made),
            "figure": "-" if share is None else f"{share:.0%}",
            "met": None if share is None else share >= INSIDE}  # fmt: skip


def _mean(rows: list[Row]) -> dict[str, Any]:
    """A tuning that was not confirmed brought nothing."""
    gains = [row["speedup"][0] if row["confirmed"] else 1.0 for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, gains))) if gains else None
    return {"bar": "tune over eager fp32, geometric mean", "asked": f"{MEAN}x of {OF}", "rows": len(rows),
            "figure": "-" if mean is None else f"{mean:.2f}x",
            "met": None if mean is None or len(rows) < OF else mean >= MEAN}  # fmt: skip


def _overhead(rows: list[Row]) -> dict[str, Any]:
    cost = rows[-1]["cost"]["median"] if rows else None
    return {"bar": "watching costs, at a step of 10 ms", "asked": f"{MOST:.0%}", "rows": len(rows),
            "figure": "-" if cost is None else f"{cost:.2%}",
            "met": None if cost is None else cost <= MOST}  # fmt: skip
