"""Jobs of two to four gloo ranks, each with an illness and its healthy twin, by authors who had not seen gobrrr: is the
rank that the others wait for named, with its phase, its line and what curing it brings?

    python -m benchmarks.ranks [--only WORD ...] [--rounds 2] [--json FILE]

Job and twin run in turns, watched alike; the true cost is the difference of their steps' medians. Two cores, quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.stamp import stamp

HERE = Path(__file__).parent
JOBS = HERE / "rank_jobs"
PHASES = {
    "loader": ("data wait",), "host": ("other", "gc", "forward"), "forward": ("forward", "backward", ""),
    "optimizer": ("optimizer",), "backward": ("backward",),
}  # fmt: skip
"""Phases of the report that mean an author's word: an evaluation makes forwards, longer inputs both passes longer."""
NEAR = 0.2
"""Share by which a cost may differ from what the cure brings."""


def main() -> int:
    """Measure and print a row for each job; 0 where every one is named and no twin is blamed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"ranks-{stamp()['date']}.json")
    args = parser.parse_args()
    rows = []
    for folder in sorted(JOBS.iterdir()):
        if folder.is_dir() and (not args.only or any(word in folder.name for word in args.only)):
            rows.append(row(folder, args.rounds))
            print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
            told = {**stamp(), "bars": bars(rows), "jobs": rows}
            args.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(found := bars(rows))
    return 0 if found["rank"] == found["phase"] == found["ill"] and not found["twins_blamed"] else 1


def bars(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count what was named; `costs` are those whose cure brought more than 5 % of the step."""
    ill = [each for each in rows if each["kind"] != "healthy"]
    costs = [each for each in ill if each["culprits"] and each["cured_ms"] > 0.05 * each["step_ms"]]
    return {
        "ill": len(ill), **{name: sum(each[name] for each in ill) for name in ("rank", "phase", "line")},
        "costs": len(costs), "costs_near": sum(abs(each["cost_ms"] / each["cured_ms"] - 1) <= NEAR for each in costs),
        "healthy": len(rows), "twins_blamed": sum(each["twin_blamed"] for each in rows),
    }  # fmt: skip


def row(folder: Path, rounds: int) -> dict[str, Any]:
    """Return what is said of a job, and what is true."""
    truth = json.loads((folder / "truth.json").read_text())
    with tempfile.TemporaryDirectory(prefix="gobrrr-ranks-") as place:
        ill, twin = Path(place) / "job.py", Path(place) / "twin.py"  # which write beside themselves
        ill.write_text((folder / "job.py").read_text())
        patch = folder / "twin.patch"
        if patch.exists():
            subprocess.run(["patch", "-F0", "-r", "-", "-o", str(twin), str(folder / "job.py"), str(patch)], check=True,
                           capture_output=True)  # fmt: skip
        else:
            twin.write_text((folder / "job.py").read_text())
        both = [(run(ill, place, 2 * at, truth), run(twin, place, 2 * at + 1, truth)) for at in range(rounds)]
    job, healthy = both[0]
    steps, cured = (median(each[at]["shared"]["step_ns"] for each in both) / 1e6 for at in (0, 1))
    first = next(iter(job["blames"]), None)
    return {
        "name": folder.name, "kind": truth["kind"], "culprits": truth["culprit_ranks"], **named(truth, job, first),
        "step_ms": round(steps, 2), "cured_ms": round(steps - cured, 2),
        "cost_ms": round(median(_cost(each[0]) for each in both), 2),
        "twin_blamed": any(each[1]["bound"] in ("straggler", "uneven", "redundant") for each in both),
        "said": job["verdict"], "said_of_twin": healthy["verdict"],
    }  # fmt: skip


def named(truth: dict[str, Any], job: dict[str, Any], first: dict[str, Any] | None) -> dict[str, bool]:
    """Return whether rank, phase and line are the author's; of communication whether nobody is blamed, and the line."""
    if truth["kind"] == "healthy":
        right = job["bound"] not in ("straggler", "uneven", "redundant")
        return dict.fromkeys(("rank", "phase", "line"), right)
    if truth["kind"] == "communication":
        at = job["verdict"].rpartition(":")[2].strip(". ")
        right = job["bound"] == "communication"
        return {"rank": right, "phase": right, "line": right and at.isdigit() and int(at) in truth["line"]}
    if first is None:
        return dict.fromkeys(("rank", "phase", "line"), False)
    when = truth["kind"].replace("constant", "always")
    return {
        "rank": first["ranks"] == truth["culprit_ranks"] and first["when"] == when,
        "phase": first["phase"] in PHASES[truth["phase"]],
        "line": first["where"] is not None and first["where"]["line"] in truth["line"],
    }  # fmt: skip


def _cost(job: dict[str, Any]) -> float:
    return sum(each["cost_ns"] for each in job["blames"]) / 1e6


def run(program: Path, place: str, number: int, truth: dict[str, Any]) -> dict[str, Any]:
    """Run a job of so many `ranks` under gobrrr (2; one that `spawns` starts them itself); return its report."""
    folder, ranks = Path(place) / f"run-{number}", str(truth.get("ranks", 2))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, str(program)]
    launch = [sys.executable, str(program)] if truth.get("spawns") else launch
    command = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", str(folder), "--", *launch]
    subprocess.run(command, cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=600)
    found: dict[str, Any] = json.loads((folder / "job.json").read_text())
    return found


if __name__ == "__main__":
    sys.exit(main())
