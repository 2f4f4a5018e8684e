"""DistributedDataParallel with one and two ranks, by NCCL where each rank has a device: step, numbers, who is late."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting, run

JOB = Path(__file__).parent / "started" / "ddp_job.py"
LATE_MS = 20
SAID = re.compile(r"rank (\d+) by (\w+): step_ms ([\d.]+)")
LOSS = re.compile(r"rank (\d+)  step (\d+)  loss (\S+)")


def job(ranks: int, late: bool, setting: Setting) -> Row:
    """One job alone, then under `gobrrr run`: its ranks' own clocks and losses beside the report's."""
    steps, late_ms = (400, LATE_MS) if setting.real else (100, 5)
    words = [str(JOB), "--steps", str(steps), *(["--late", str(late_ms)] if late else [])]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *words]
    with tempfile.TemporaryDirectory(prefix="gobrrr-ddp-") as scratch:
        place = Path(scratch)
        plain = run(launch, place)
        told = run(["-m", "gobrrr", "run", "--no-rehearsal", "-o", "run", *launch], place)
        found = json.loads((place / "run" / ("job.json" if ranks > 1 else "report.json")).read_text(encoding="utf-8"))
    clocks, watched = ({int(rank): float(ms) for rank, _, ms in SAID.findall(said)} for said in (plain, told))
    step_ms = (found["shared"]["step_ns"] if ranks > 1 else found["step"]["plain_wall_ns"]) / 1e6
    blames = [each["ranks"] for each in found["blames"]] if ranks > 1 else []
    return {
        "ddp": ranks, "backend": SAID.findall(plain)[0][1], "late": late, "counts": setting.real, "step_ms": step_ms,
        "clock_ms": max(clocks.values()), "watched_clock_ms": max(watched.values()), "blames": blames,
        "rank_named": blames[:1] == ([[ranks - 1]] if late else []), "verdict": found["verdict"],
        "watched_is_plain": same(plain, told),
    }  # fmt: skip


def same(plain: str, watched: str) -> bool:
    """Whether both printed losses, and the same ones."""
    losses = [sorted(LOSS.findall(said)) for said in (plain, watched)]
    return bool(losses[0]) and losses[0] == losses[1]
