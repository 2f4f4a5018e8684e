"""Jobs of two ranks under torchrun and torch.multiprocessing: one report, who is waited for, and who ended first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

HEAD = """
import os, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def train(rank, late=0.0, num_steps=220, last=lambda rank, step: None):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(num_steps):
        x = torch.randn(16, 64)
        if rank == 1:
            time.sleep(late)  # <- here
        last(rank, step)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LAUNCHED = """
dist.init_process_group("gloo")
train(dist.get_rank(), late=0.015)
dist.destroy_process_group()
"""
KILLED = """
def die(rank, step):
    if rank == 1 and step == 100:
        os.kill(os.getpid(), 9)
dist.init_process_group("gloo")
train(dist.get_rank(), late=0.005, last=die)
"""
SPAWNED = """
import torch.multiprocessing as mp
def work(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train(rank, late=0.015)
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, (os.path.abspath("store"),), nprocs=2)
"""
LINE = 1 + HEAD.splitlines().index("            time.sleep(late)  # <- here")


def run(folder: Path, source: str, *launcher: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """The job's report and how the run ended."""
    (folder / "train.py").write_text(HEAD + source)
    command = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", "run", *launcher, "train.py"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    return json.loads((folder / "run" / "job.json").read_text()), done


TORCHRUN = ("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def test_the_rank_that_the_other_waits_for_is_named_with_its_line_and_what_it_costs(tmp_path: Path) -> None:
    job, done = run(tmp_path, LAUNCHED, *TORCHRUN)
    assert done.returncode == 0 and "Execution Trace" not in done.stderr
    (one,) = job["blames"][:1]
    assert (job["bound"], job["slowest"], one["when"], one["ranks"]) == ("straggler", 1, "always", [1])
    assert one["where"]["line"] == LINE and one["phase"] == "other"
    assert one["surplus_ns"] == pytest.approx(15e6, rel=0.5)  # a sleep is no shorter, and the machine may be busy
    told = [line for line in done.stderr.splitlines() if "Straggler" in line]
    assert told[0].startswith("Straggler: rank 1 works"), done.stderr
    assert "rank 1:" in done.stderr, "its own report follows"
    page = (tmp_path / "run" / "job.html").read_text()
    assert "Straggler: rank 1" in page and "waits for later ranks" in page
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1] and not job["endings"]


@pytest.mark.slow
def test_a_rank_that_is_killed_ended_first(tmp_path: Path) -> None:
    job, done = run(tmp_path, KILLED, *TORCHRUN)
    assert done.returncode == 1
    assert job["ended"].startswith("Rank 1 was killed after") and "rank 0 ended with" in job["endings"][0]


@pytest.mark.slow
def test_spawned_ranks_are_a_job_too(tmp_path: Path) -> None:
    job, done = run(tmp_path, SPAWNED)
    assert done.returncode == 0 and (job["slowest"], [rank["rank"] for rank in job["ranks"]]) == (1, [0, 1])
