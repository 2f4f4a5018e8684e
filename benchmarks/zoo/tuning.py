"""`gobrrr tune` on a program of the zoo, and the single remedies that people pick beside it."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.zoo.case import PROGRAMS, Case
from benchmarks.zoo.running import PATIENCE_S, TAIL, run
from gobrrr.capture.steps import vitals

PICKS = ("compile", "bf16_autocast", "fused_optimizer", "malloc_thresholds")


def tuned(case: Case, minutes: float) -> dict[str, Any]:
    """A tuning: speed-up (median, low, high), null where nothing was kept."""
    return {**_tune(case, minutes), "minutes": minutes, "cores": vitals.cores()}


def picked(file: Path) -> list[dict[str, Any]]:
    """Rows of what benchmarks.rehearsed_zoo measured, sweep by sweep, of single picks (a tuning of a minute for each of
    them kept none on three programs) and of every remedy: shares of the step, [low, high]."""
    programs = json.loads(file.read_text(encoding="utf-8"))["programs"]
    return [
        {"name": name, "kind": "picks", "skipped": "",
         "picks": {pick: told["speedup"][0] for pick, told in each["picks"].items()
                   if pick in PICKS and told.get("speedup")},
         "gains": _gains(each)}
        for name, each in programs.items()
    ]  # fmt: skip


def _gains(measured: dict[str, Any]) -> dict[str, list[float]]:
    alone = {name: [1 - 1 / times for times in told["speedup"][1:]]
             for name, told in measured["picks"].items() if told.get("speedup")}  # fmt: skip
    played = {pair["remedy"]: [end / pair["step_ns"] for end in pair["realised_interval_ns"]]
              for pair in measured.get("pairs", []) if pair.get("realised_interval_ns")}  # fmt: skip
    return {**alone, **played}


def _tune(case: Case, minutes: float) -> dict[str, Any]:
    with TemporaryDirectory(prefix="gobrrr-zoo-") as scratch:
        place = Path(scratch)
        for file in (case.script, PROGRAMS / "words.py"):
            shutil.copy2(file, place)
        words = [case.script.name] if not case.command else ["--", *case.plain()]
        start = time.monotonic()
        command = [sys.executable, "-m", "gobrrr", "tune", "-o", "out", "--minutes", str(minutes), *words]
        done = run(command, place, PATIENCE_S + 60 * minutes)
        file = place / "out" / "receipt.json"
        receipt = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        speed = receipt.get("speedup") or {}
        return {
            "exit_code": done.code, "seconds": round(time.monotonic() - start, 1), "told": done.err[-TAIL:],
            "kept": receipt.get("kept", []), "guard": (receipt.get("guard") or {}).get("verdict"),
            "speedup": [speed[key] for key in ("median", "low", "high")] if speed else None,
            "trials": [
                {key: each.get(key) for key in ("remedies", "onto", "verdict", "reason", "speedup")}
                for each in receipt.get("trials", [])
            ],
        }  # fmt: skip
