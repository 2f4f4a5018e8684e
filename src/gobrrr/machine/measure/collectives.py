"""How long do all-reduces take between processes of this machine that do nothing else? A short probe by gloo."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST_RANKS, MOST_SIZES = 16, 6
"""Processes that are started, and sizes that are measured, the first ones."""
SECONDS = 20.0
"""Until the probe is given up: imports, and half a second for each size."""
_SCRIPT = """
import json, sys, time
import torch, torch.distributed as dist
file, rank, ranks, *sizes = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{file}", rank=int(rank), world_size=int(ranks))
found = []
for size in map(int, sizes):
    tensor, taken = torch.zeros(max(1, size // 4)), []
    for _ in range(25):
        began = time.perf_counter_ns()
        dist.all_reduce(tensor)
        taken.append(time.perf_counter_ns() - began)
    found.append(sorted(taken[5:])[10])
if rank == "0":
    print(json.dumps(found))
"""


def all_reduces(sizes: Sequence[int], ranks: int, interpreter: str = sys.executable) -> dict[int, float]:
    """Return bytes -> median ns of one all-reduce between so many processes of this machine; empty where they could not
    be started, or did not end in time."""
    sizes = list(dict.fromkeys(sizes))[:MOST_SIZES]
    if not sizes or not 2 <= ranks <= MOST_RANKS:
        return {}
    with tempfile.TemporaryDirectory(prefix="gobrrr-link-") as place:
        words = [interpreter, "-c", _SCRIPT, str(Path(place) / "store")]
        started: list[subprocess.Popen[str]] = []
        try:
            started += (
                subprocess.Popen([*words, str(rank), str(ranks), *map(str, sizes)], cwd=place, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
                for rank in range(ranks)
            )  # fmt: skip
            told, _ = started[0].communicate(timeout=SECONDS)
            return dict(zip(sizes, map(float, json.loads(told)), strict=True))
        except (OSError, subprocess.TimeoutExpired, ValueError, TypeError):
            return {}
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
