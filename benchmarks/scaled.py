"""Is a step on more ranks what `gobrrr scale` says, over a network that is slowed down?

    python -m benchmarks.scaled [--only NAME ...] [--steps 200] [--json FILE]

Each rank of a job has a network namespace of its own, whose interface lets so many bits per second through (tc tbf).
The job runs on 1, 2 and 4 ranks; what is told from fewer ranks is held against what was measured. Needs root, ip, tc.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.stamp import stamp
from gobrrr.ledger.job.forecast import REACHED, Network
from gobrrr.pipeline import runs

HERE = Path(__file__).parent
RANKS = (1, 2, 4)
LATENCY_NS = 300e3
"""Of a message of gloo between two processes of one machine, as the page of BRR705 has it: half a millisecond for two
messages and more."""
BAR = 0.1


class Job(NamedTuple):
    """A job: its network in Mb/s, ms of work a step that no core does, width of its layers, spread of that work."""

    mbit: int
    ms: float
    width: int
    jitter: float


JOBS = {
    "slow_link": Job(200, 100, 500, 0.0), "usual_link": Job(500, 60, 700, 0.2), "fast_link": Job(2000, 60, 700, 0.1),
    "late_ranks": Job(2000, 60, 200, 0.6), "one_bucket": Job(500, 80, 300, 0.1),
}  # fmt: skip
PROGRAM = """\
import os, random, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
ms, width, jitter, steps = (float(word) for word in sys.argv[1:])
world, width = int(os.environ.get("WORLD_SIZE", 1)), int(width)
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(6)))
if world > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
drawn = random.Random(int(os.environ.get("RANK", 0)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(int(steps)):
    x = torch.randn(1, width)
    time.sleep(ms / 1e3 * (1 + jitter * drawn.expovariate(1)))
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if world > 1:
    dist.barrier()
"""
START = """\
for i in $(seq 0 $(($1 - 1))); do
    ip netns exec gobrrr$i env RANK=$i LOCAL_RANK=$i WORLD_SIZE=$1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 \\
        GLOO_SOCKET_IFNAME=eth0 "${@:2}" &
done
wait
"""


def main() -> int:
    """Measure all and print a row for each forecast; 0 where every one is within 10 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"scaled-{stamp()['date']}.json")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, job in JOBS.items():
        if not args.only or name in args.only:
            for row in forecasts(job, args.steps):
                rows.append({"job": name, **row})
                print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    errors = [abs(row["error"]) for row in rows]
    bars = {"forecasts": len(rows), "median": median(errors), "most": max(errors),
            "within": sum(error <= BAR for error in errors), "inside": sum(row["inside"] for row in rows)}  # fmt: skip
    args.json.write_text(json.dumps({**stamp(), "bars": bars, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(bars)
    return 0 if bars["most"] <= BAR else 1


def forecasts(job: Job, steps: int) -> Iterator[dict[str, Any]]:
    """Yield each forecast of one job beside what was measured."""
    with tempfile.TemporaryDirectory(prefix="gobrrr-scaled-") as place, network(job.mbit):
        folders = {ranks: run(job, ranks, steps, Path(place)) for ranks in RANKS}
        truth = {ranks: runs.scale([folder], [ranks], Network(1e9, 0.0)).seen for ranks, folder in folders.items()}
        stated = Network(job.mbit * 1e6 / 8, LATENCY_NS, "stated", REACHED)
        for seen, ranks, link in product(RANKS, RANKS, (stated, None)):
            if seen >= ranks or (seen == 1 and link is None):
                continue
            (point,) = runs.scale([folders[seen]], [ranks], link).points
            measured = truth[ranks].step_ns
            yield {"from": seen, "to": ranks, "network": "stated" if link else "measured",
                   "told_ms": round(point.step_ns / 1e6, 1), "low_ms": round(point.low_ns / 1e6, 1),
                   "high_ms": round(point.high_ns / 1e6, 1), "measured_ms": round(measured / 1e6, 1),
                   "error": round(point.step_ns / measured - 1, 3),
                   "inside": point.low_ns <= measured <= point.high_ns}  # fmt: skip


def run(job: Job, ranks: int, steps: int, place: Path) -> Path:
    """Return the folder of a watched run on so many ranks."""
    (place / "job.py").write_text(PROGRAM)
    (place / "start.sh").write_text(START)
    words = [sys.executable, "job.py", *map(str, (job.ms, job.width, job.jitter, steps))]
    command = words if ranks == 1 else ["bash", "start.sh", str(ranks), *words]
    folder = place / f"run{ranks}"
    subprocess.run([sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", str(folder), "--", *command],
                   cwd=place, check=True, capture_output=True)  # fmt: skip
    return folder


@contextmanager
def network(mbit: int) -> Iterator[None]:
    """A namespace for each rank, all on one bridge, with so many bits per second each."""

    def ip(words: str, check: bool = True) -> None:
        subprocess.run(words.split(), check=check, capture_output=not check)

    def clear() -> None:
        for at in range(RANKS[-1]):
            ip(f"ip netns del gobrrr{at}", check=False)
        ip("ip link del gobrrr", check=False)

    clear()
    try:
        ip("ip link add gobrrr type bridge")
        ip("ip link set gobrrr up")
        for at in range(RANKS[-1]):
            ip(f"ip netns add gobrrr{at}")
            ip(f"ip link add gobrrr{at} type veth peer name eth0 netns gobrrr{at}")
            ip(f"ip link set gobrrr{at} master gobrrr up")
            ip(f"ip -n gobrrr{at} addr add 10.77.0.{at + 1}/24 dev eth0")
            ip(f"ip -n gobrrr{at} link set eth0 up")
            ip(f"ip -n gobrrr{at} link set lo up")
            ip(f"tc -n gobrrr{at} qdisc add dev eth0 root tbf rate {mbit}mbit burst 256kb latency 200ms")
        yield
    finally:
        clear()


if __name__ == "__main__":
    sys.exit(main())
