"""Programs with a truth, scored: planted ones by the bench of planted programs, the twelve ordinary ones by their loop,
step, cause, line, saving and printed losses, each against a clock that is not gobrrr's."""

from __future__ import annotations

import json
import re
import tempfile
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import planted
from benchmarks import planted_scoring as scoring
from benchmarks.gpu.plants import Plant
from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting, run
from benchmarks.gpu.twelve import Ordinary
from benchmarks.planted_truth import CLOCK, Timing, environment, read_rows

TINY_STEPS = 30
NEAR = 0.1
"""Share by which a step may differ from the clock's."""
SAME = 1e-3
"""Share by which a printed loss may differ: atomic sums of a device differ by less."""
LOSS = re.compile(r"step +(\d+)  loss (-?[\d.]+|nan|inf)")
Losses = dict[int, float]


def scored(plant: Plant, setting: Setting) -> Row:
    """One planted pair, timed alone and through `gobrrr run`; on a CPU its score means nothing."""
    args = Namespace(rounds=1, steps=None if setting.real else TINY_STEPS, patience=0.0, skip_gobrrr=False)
    entry, _ = planted.examine(plant, args, None)
    if "error" in entry:
        raise RuntimeError(entry["error"])
    promises = [promise(plant.name, entry["sick"]["saving"], entry["saving_here_ns"])] if entry["is_ill"] else []
    return {**entry, "counts": setting.real, "promises": promises}


def watching(entry: Row) -> float | None:
    """The healthy twin's plain step under `gobrrr run` over its step alone: what being watched costs, and noise."""
    told = (entry.get("told") or {}).get("healthy")
    return told["step"]["plain_wall_ns"] / entry["healthy_ns"] if told else None


def bars(entries: list[Row]) -> dict[str, Any]:
    """Shares against the bars of the bench, of the rows that count."""
    counting = [entry for entry in entries if entry.get("counts")]
    found = planted.summarise(counting, [])
    return {bar: {"share": found["shares"][bar], "of": found["counts"][bar], "bar": scoring.BARS[bar]}
            for bar in scoring.BARS}  # fmt: skip


def ordinary(plant: Ordinary, setting: Setting) -> Row:
    """One of the twelve: ill and mended under the clock, ill once more under `gobrrr run`."""
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{plant.name}-") as scratch:
        place = Path(scratch)
        ill, losses = clocked(plant.put(place / "ill", "sick"), setting)
        mended, others = clocked(plant.put(place / "mended", "healthy"), setting)
        report, watched = told(place / "ill" / "train.py", setting)
        marks = plant.marks(place / "ill")
    return {**judged(report, plant, marks, ill, mended), "ordinary": plant.name, "counts": setting.real,
            "watched_is_plain": same(losses, watched), "mended_loss": first(others), "ill_loss": first(losses),
            "ill": asdict(ill), "mended": asdict(mended)}  # fmt: skip


def judged(report: dict[str, Any], plant: Ordinary, marks: dict[str, set[int]], ill: Timing, mended: Timing) -> Row:
    """What a report said of it beside what is true."""
    findings, step = scoring.findings(report), report["step"]
    top = findings[0] if findings else None
    clock = ill.mean_ns if step["averaged"] else ill.median_ns
    places = [(Path(where["file"]).name, where["line"]) for where in (top or {}).get("where", [])]
    mean = plant.statistic == "mean"
    before, after = (each.mean_ns if mean else each.median_ns for each in (ill, mended))
    here = scoring.saving_here(report, before, after, plant.statistic)
    match = next((f for f in findings if f["code"] in plant.codes), None)
    return {
        "top": top["code"] if top else "", "headline": bool(top) and top["code"] in plant.codes,
        "placed": any(abs(line - each) <= scoring.NEAR for file, line in places for each in marks.get(file, ())),
        "places": places, "verdict": report["verdict"],
        "loop": step["kind"] == "training" and 0.9 <= step["count"] / ill.num_steps <= 1.5,
        "step_ns": step["plain_wall_ns"], "clock_ns": clock, "steps": abs(step["plain_wall_ns"] / clock - 1) <= NEAR,
        "ratio_by_hand": before / after,
        "promises": [promise(plant.name, _saving(match), here)],
        "findings": [{key: f[key] for key in ("code", "severity", "saving", "where")} for f in findings[:6]],
    }  # fmt: skip


def promised(plant: Ordinary, setting: Setting) -> Row:
    """What findings promise of several cures of one program, each beside what came by the clock."""
    cures = [(f"{plant.name}, by hand", plant.codes, plant.fix),
             *((f"{plant.name}, {name}", codes, fix) for name, _, codes, fix in plant.others)]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{plant.name}-") as scratch:
        script = plant.put(Path(scratch) / "ill", "sick")
        ill, _ = clocked(script, setting)
        report, _ = told(script, setting)
        found = []
        for at, (name, codes, fix) in enumerate(cures):
            mended, _ = clocked(plant.put(Path(scratch) / str(at), "mended", fix), setting)
            match = next((f for f in scoring.findings(report) if f["code"] in codes), None)
            came = scoring.saving_here(report, ill.median_ns, mended.median_ns, "median")
            found.append(promise(name, _saving(match), came))
    return {"promises": found, "counts": setting.real, "clock_ns": ill.median_ns}


def promise(name: str, saving: tuple[float, float, float] | None, came_ns: float) -> dict[str, Any]:
    """One cure: what was promised (low, expected, ceiling; null where nothing was) and what came, ns per step."""
    held = saving is not None and saving[0] <= came_ns <= saving[2]
    return {"of": name, "promised_ns": saving, "came_ns": came_ns, "held": held}


def clocked(script: Path, setting: Setting) -> tuple[Timing, Losses]:
    """A program alone, under the clock of its device's own events; and the losses that it printed."""
    out = script.with_suffix(".clock.json")
    said = run([str(CLOCK), str(out), "training", str(script), *_steps(setting)], script.parent, environment())
    return read_rows(json.loads(out.read_text(encoding="utf-8"))), losses_of(said)


def told(script: Path, setting: Setting) -> tuple[dict[str, Any], Losses]:
    """The report of `gobrrr run`, and the losses that the program printed under it."""
    out = script.with_suffix(".report.json")
    words = ["-m", "gobrrr", "run", *([] if setting.real else ["--no-rehearsal"]), "--json", str(out)]
    said = run([*words, "-o", str(script.with_suffix(".run")), str(script), *_steps(setting)], script.parent)
    return json.loads(out.read_text(encoding="utf-8")), losses_of(said)


def losses_of(said: str) -> Losses:
    """Printed losses by step."""
    return {int(step): float(loss) for step, loss in LOSS.findall(said)}


def same(plain: Losses, watched: Losses) -> bool:
    """Whether both printed the same losses at the same steps."""
    return bool(plain) and plain.keys() == watched.keys() and all(
        abs(plain[at] - watched[at]) <= SAME * max(1.0, abs(plain[at])) for at in plain
    )  # fmt: skip


def first(losses: Losses) -> float | None:
    """The loss of the first step that printed one."""
    return losses[min(losses)] if losses else None


def _steps(setting: Setting) -> list[str]:
    return [] if setting.real else ["--steps", str(TINY_STEPS)]


def _saving(finding: dict[str, Any] | None) -> tuple[float, float, float] | None:
    return tuple(finding["saving"][key] for key in ("low_ns", "expected_ns", "ceiling_ns")) if finding else None  # type: ignore[return-value]
