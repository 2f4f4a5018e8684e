"""A tensor that gobrrr has looked at can be resized as before: tensor.numpy() would end that, and FSDP resizes."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gobrrr  # noqa: E402
from gobrrr.capture.facts.tensors import bytes_of, some_bytes  # noqa: E402
from gobrrr.data.sample_cache.raw_bytes import feed_tensor  # noqa: E402
from gobrrr.guard.watch.digest import look, raw  # noqa: E402

SHARDED = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
mesh = torch.distributed.init_device_mesh("cpu", (2,))
torch.manual_seed(0)
layers = torch.nn.Embedding(100, 16), torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
model = torch.nn.Sequential(*layers)
for layer in (model[0], model[1], model[3]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(150):
    loss = model(torch.arange(32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"{loss.item():.9e}", flush=True)
dist.barrier()
os._exit(0)  # gloo's threads abort an interpreter that ends, now and then, without gobrrr too
"""


def feed(tensor: Any) -> None:
    feed_tensor(hashlib.sha1(usedforsecurity=False).update, tensor)


@pytest.mark.parametrize(
    "see",
    [bytes_of, lambda t: some_bytes(t, 256), raw, look, feed],
    ids=["bytes_of", "some_bytes", "raw", "look", "feed"],
)
@pytest.mark.parametrize("size", [8, 100_000])
def test_a_tensor_that_was_looked_at_can_be_resized(see: Callable[[Any], Any], size: int) -> None:
    tensor = torch.ones(size)
    see(tensor)
    tensor.untyped_storage().resize_(0)


def test_nothing_that_runs_in_a_program_calls_numpy_of_a_tensor() -> None:
    """But of a generator's state, which is made for it."""
    source = Path(gobrrr.__file__).parent
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for room in ("capture", "guard", "trial", "remedies", "data", "layers")
        for path in (source / room).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\.numpy\(\)", line)
        and not re.search(r"state(\(\))?(\.cpu\(\))?\.numpy\(\)|tensor\.numpy\(\)", line)
    ]
    assert found == []


@pytest.mark.slow
def test_a_sharded_model_trains_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHARDED)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    watch = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", "run", "--"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    plain, watched = (
        subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        for command in (launch, watch + launch)
    )
    assert plain.returncode == 0, plain.stderr
    assert (watched.returncode, watched.stdout) == (0, plain.stdout), watched.stderr
