"""Runs a program of the zoo under the clock and under `gobrrr run`, and beside its twin that was mended by hand."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.planted_peers import RIGHT_PHASE, STEPS, TraceML, read_summary
from benchmarks.zoo.case import PROGRAMS, Case
from gobrrr.capture.steps import vitals

CLOCK = Path(__file__).with_name("clock.py")
PATIENCE_S = 600
WARMUP_SHARE = 0.2
ORDER = ("plain", "mended")
BAND_OF = {"compute": "1", "bandwidth": "2", "host": "3", "overhead": "3", "data": "4", "memory": "6",
           "communication": "1"}  # fmt: skip
"""The band of codes under which the peer's phases are read, of each bound."""
TAIL, TOLD = 20_000, 500
"""Characters that are kept of what a program put out, and of why it failed."""
TIMES = re.compile(r"'\w+(?:runtime|per_second)': '?[\d.e-]+'?")
"""What a Trainer prints of its own speed differs between any two runs."""


class Ended(NamedTuple):
    """A process that ended; code null where it had to be ended."""

    code: int | None
    out: str
    err: str
    seconds: float


def watched(case: Case) -> dict[str, Any]:
    """`gobrrr run` beside the program under our clock: what both put out, what the clock saw, and the report."""
    with TemporaryDirectory(prefix="gobrrr-zoo-") as scratch:
        plain = run(clocked(case, Path(scratch) / "clock.json"), _copy(case, Path(scratch) / "plain"))
        if plain.code != 0:
            raise RuntimeError(f"the program alone left with {plain.code}: {plain.err[-TOLD:]}")
        place = _copy(case, Path(scratch) / "watched")
        words = [case.script.name] if not case.command else ["--", *case.plain()]
        command = [sys.executable, "-m", "gobrrr", "run", "--json", "report.json", "-o", "recording", *words]
        seen = run(command, place)
        return {
            "plain_s": round(plain.seconds, 1), "watched_s": round(seen.seconds, 1),
            "exit_codes": [plain.code, seen.code], "same_output": same(plain.out, seen.out),
            "outputs": [] if same(plain.out, seen.out) else [plain.out[-TAIL:], seen.out[-TAIL:]],
            "told": seen.err[-TAIL:], "clock": _clock(case, Path(scratch) / "clock.json"),
            "report": _report(place / "report.json"),
        }  # fmt: skip


def truth(case: Case, rounds: int) -> dict[str, Any]:
    """What the expert's fix saves of the loop's time: one after the other, each with all cores (beside each other,
    threads that spin would keep the other's from theirs), in an order that turns with each round."""
    if not case.fix:
        return {"ratios": [], "saved": None}
    ratios = []
    for number in range(rounds):
        with TemporaryDirectory(prefix="gobrrr-zoo-") as scratch:
            seconds = {who: _alone(case, who, Path(scratch)) for who in ORDER[:: -1 if number % 2 else 1]}
            ratios.append(seconds["mended"] / seconds["plain"])
    return {"ratios": ratios, "saved": 1 - statistics.median(ratios), "cores": vitals.cores()}


def asked(case: Case) -> dict[str, Any]:
    """What TraceML says of it, given the step boundaries from outside that it wants in the code: its kind, its sentence
    and whether that is the phase where the expert's cause lies."""
    if case.command:
        raise RuntimeError("it needs a launcher")
    peer = TraceML.install()
    if isinstance(peer, str):
        raise RuntimeError(peer)
    with TemporaryDirectory(prefix="gobrrr-zoo-") as scratch:
        place = _copy(case, Path(scratch) / "asked")
        program = [str(STEPS.resolve()), "--args", case.counts or case.kind, case.script.name]
        said = peer.summary(program, place, environment())
    if isinstance(said, str):
        raise RuntimeError(said)
    found = read_summary(
        said, tuple(word for bound in case.bounds for word in RIGHT_PHASE.get(BAND_OF.get(bound, ""), ()))
    )
    return {"peer": peer.version, "said": found.kind, "sentence": found.sentence, "right_phase": found.right_phase}


def same(one: str, other: str) -> bool:
    """Outputs are the same, figures of speed aside."""
    return TIMES.sub("", one) == TIMES.sub("", other)


def _report(file: Path) -> dict[str, Any] | None:
    return kept(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def kept(report: dict[str, Any]) -> dict[str, Any] | None:
    """What scoring reads of a report; of a job of several ranks its first."""
    if "step" not in report:
        ranks = report.get("ranks") or []
        return kept(ranks[0]) if ranks else None
    report["findings"] = [
        {key: each.get(key) for key in ("code", "bound", "severity", "message", "saving", "where", "between")}
        for each in report["findings"]
    ]
    return {key: report.get(key) for key in ("verdict", "step", "ledger", "findings", "roofline", "loops", "phases")}


def run(command: list[str], place: Path, patience: float = PATIENCE_S, **variables: str) -> Ended:
    """Run it to its end in that folder, for so many seconds at most, with these in its environment."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env={**environment(), **variables},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
        )
    except subprocess.TimeoutExpired as late:
        return Ended(None, "", f"no end after {patience:.0f} s: {late.cmd}", time.monotonic() - start)
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


def clocked(case: Case, out: Path) -> list[str]:
    """The command that runs it under our clock, in a folder that holds its file."""
    return [sys.executable, *case.command, str(CLOCK), str(out), case.counts or case.kind, case.script.name]


def _alone(case: Case, who: str, scratch: Path) -> float:
    """Seconds of the loop of the program, or of its twin that was mended, by the clock."""
    place = _copy(case, scratch / who)
    if who == "mended":
        (place / case.script.name).write_text(case.mended(), encoding="utf-8")
    out = scratch / f"{who}.json"
    done = run(clocked(case, out), place, ZOO_UNPROFILED="1")
    seen = _clock(case, out)
    if done.code != 0 or seen is None:
        raise RuntimeError(f"{case.name} left with {done.code}: {done.err[-TOLD:]}")
    return float(seen["loop_s"])


def _clock(case: Case, file: Path) -> dict[str, Any] | None:
    """Figures of the clock's rows; null where it saw fewer than three."""
    seen = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
    rows = seen["rows"][:: case.per_step]
    if len(rows) < 3:
        return None
    walls = [(after[0] - before[0]) * 1e3 for before, after in itertools.pairwise(rows)]
    return {
        "steps": len(rows), "loop_s": rows[-1][0] - seen["began"], "step_ms": statistics.median(walls),
        "phases": phases(rows), "lines": seen["lines"], "ops": seen["ops"],
    }  # fmt: skip
