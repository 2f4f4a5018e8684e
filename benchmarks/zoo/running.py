"""Runs a program of the zoo plain and under `gobrrr run`; a program and its mended twin side by side under the clock."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.zoo.case import PROGRAMS, Case

CLOCK = Path(__file__).with_name("clock.py")
PATIENCE_S = 600
WARMUP_SHARE = 0.2
TAIL = 3000


class Ended(NamedTuple):
    """A process that ended; code null where it had to be ended."""

    code: int | None
    out: str
    err: str
    seconds: float


def watched(case: Case) -> dict[str, Any]:
    """`gobrrr run` beside the plain program: what both put out, and the report."""
    with TemporaryDirectory(prefix="gobrrr-zoo-") as scratch:
        plain = run(case.plain(), _copy(case, Path(scratch) / "plain"))
        place = _copy(case, Path(scratch) / "watched")
        words = [case.script.name] if not case.command else ["--", *case.plain()]
        command = [sys.executable, "-m", "gobrrr", "run", "--json", "report.json", "-o", "recording", *words]
        seen = run(command, place)
        file = place / "report.json"
        return {
            "plain_s": round(plain.seconds, 1), "watched_s": round(seen.seconds, 1),
            "exit_codes": [plain.code, seen.code], "same_output": plain.out == seen.out,
            "told": seen.err[-TAIL:], "error": plain.err[-TAIL:] if plain.code else "",
            "report": kept(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None,
        }  # fmt: skip


def kept(report: dict[str, Any]) -> dict[str, Any] | None:
    """What scoring reads of a report; of a job of several ranks its first."""
    if "step" not in report:
        ranks = report.get("ranks") or []
        return kept(ranks[0]) if ranks else None
    report["findings"] = [
        {key: each[key] for key in ("code", "bound", "severity", "message", "saving", "where")}
        for each in report["findings"]
    ]
    return {key: report.get(key) for key in ("verdict", "step", "ledger", "findings", "roofline", "loops", "phases")}


def truth(case: Case, rounds: int) -> dict[str, Any]:
    """The program under the clock, and what its fix saves: both run at once, so that neighbours disturb both alike."""
    ratios, first = [], None
    for _ in range(rounds):
        with TemporaryDirectory(prefix="gobrrr-zoo-") as scratch:
            twins = [_clocked(case, Path(scratch), who) for who in ("plain", "mended")[: 1 + bool(case.fix)]]
            seen = [_seen(twin, Path(scratch), who) for twin, who in zip(twins, ("plain", "mended"), strict=False)]
        first = first or seen[0]
        if len(seen) > 1:
            ratios.append(seen[1]["loop_s"] / seen[0]["loop_s"])
    assert first is not None
    return {**first, "saved": 1 - statistics.median(ratios) if ratios else None, "ratios": ratios}


def run(command: list[str], place: Path) -> Ended:
    """Run it to its end in that folder."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=place, env=environment(), capture_output=True, text=True, errors="replace", timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as late:
        return Ended(None, "", f"no end after {PATIENCE_S} s: {late.cmd}", time.monotonic() - start)
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def environment() -> dict[str, str]:
    """The environment; nothing is fetched, torch's own chatter is off."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "KINETO_LOG_LEVEL": "99", "TOKENIZERS_PARALLELISM": "false"}


def phases(rows: list[list[float]], names: tuple[str, ...] = ("data", "forward", "backward", "optimizer")) -> Any:
    """Shares of the loop after its warm-up; they may overlap (a closure runs inside the optimizer)."""
    first, last = rows[round(WARMUP_SHARE * len(rows))], rows[-1]
    return {
        name: round((last[at] - first[at]) / (last[0] - first[0]), 3) for at, name in enumerate(names, 1)
    }  # fmt: skip


def _copy(case: Case, place: Path) -> Path:
    place.mkdir()
    for file in (case.script, PROGRAMS / "words.py"):
        shutil.copy2(file, place)
    return place


def _clocked(case: Case, scratch: Path, who: str) -> subprocess.Popen[str]:
    place = _copy(case, scratch / who)
    if who == "mended":
        (place / case.script.name).write_text(case.mended(), encoding="utf-8")
    kind = case.kind if case.updates else "backward"
    command = [sys.executable, *case.command, str(CLOCK), str(scratch / f"{who}.json"), kind, case.script.name]
    return subprocess.Popen(
        command, cwd=place, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _seen(twin: subprocess.Popen[str], scratch: Path, who: str) -> dict[str, Any]:
    _, err = twin.communicate(timeout=PATIENCE_S)
    if twin.returncode:
        raise RuntimeError(f"{who} left with {twin.returncode}: {err[-TAIL:]}")
    seen = json.loads((scratch / f"{who}.json").read_text(encoding="utf-8"))
    rows = seen["rows"]
    return {
        "steps": len(rows), "loop_s": rows[-1][0] - rows[0][0],
        "step_ms": statistics.median((b[0] - a[0]) * 1e3 for a, b in zip(rows, rows[1:], strict=False)),
        "phases": phases(rows), "lines": seen["lines"], "ops": seen["ops"],
    }  # fmt: skip
