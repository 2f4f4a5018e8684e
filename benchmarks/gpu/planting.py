"""The planted programs, by the bench that scores all planted programs: cause, line and saving."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from benchmarks import planted
from benchmarks.gpu.plants import Plant
from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting
from benchmarks.planted_scoring import BARS

TINY_STEPS = 30


def scored(plant: Plant, setting: Setting) -> Row:
    """One pair, timed alone and through `gobrrr run`; on a CPU its score means nothing."""
    args = Namespace(rounds=1, steps=None if setting.real else TINY_STEPS, patience=0.0, skip_gobrrr=False)
    entry, _ = planted.examine(plant, args, None)
    if "error" in entry:
        raise RuntimeError(entry["error"])
    return {**entry, "counts": setting.real}


def watching(entry: Row) -> float | None:
    """The healthy twin's plain step under `gobrrr run` over its step alone: what being watched costs, and noise."""
    told = (entry.get("told") or {}).get("healthy")
    return told["step"]["plain_wall_ns"] / entry["healthy_ns"] if told else None


def bars(entries: list[Row]) -> dict[str, Any]:
    """Shares against the bars of the bench, of the rows that count."""
    counting = [entry for entry in entries if entry.get("counts")]
    found = planted.summarise(counting, [])
    return {bar: {"share": found["shares"][bar], "of": found["counts"][bar], "bar": BARS[bar]} for bar in BARS}
