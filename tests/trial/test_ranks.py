"""An arm of several ranks: who listens to the referee, on which port they meet, and an edit that is proven on both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr.capture.process.config import Config
from gobrrr.trial.arm import inside, ranks
from gobrrr.trial.arm.arm import Arm

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
JOB = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(part for _ in range(10) for part in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
drawn = torch.Generator().manual_seed(dist.get_rank())
for step in range(100000):
    x = torch.randn(32, 64, generator=drawn)
    loss = (model(x).squeeze(1) - x.mean(dim=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
"""
LAST = """        parameter.grad /= 2
"""
ON_ONE = (
    LAST
    + """        if dist.get_rank() == 1:
            parameter.grad *= 1.01
"""
)


def test_each_arm_of_a_job_has_a_port_of_its_own() -> None:
    first, second = (ranks.port_of_its_own(TORCHRUN)[ranks.PORT] for _ in range(2))
    assert first != second and 1024 <= int(first) <= 65535
    assert ranks.port_of_its_own((sys.executable, "train.py", "torchrun")) == {}


@pytest.mark.parametrize(
    ("words", "kept"),
    [("torchrun --standalone --master_port=29500 a.py --master_port=1", "--standalone a.py --master_port=1"),
     ("torchrun --master-port 29500 -m pkg --nnodes 3 --master-port 7", "-m pkg --nnodes 3 --master-port 7"),
     ("torchrun --rdzv_endpoint=here:9 a.py --lr 1", "--rdzv-endpoint=localhost:0 a.py --lr 1"),
     ("torchrun --no-python ./run.sh --master-port 7", "--no-python ./run.sh --master-port 7"),
     ("accelerate launch --multi_gpu --main-process-port 29500 a.py --lr 1",
      "launch --main_process_port=0 --multi_gpu a.py --lr 1"),
     ("accelerate launch a.py --main_process_port 8", "launch --main_process_port=0 a.py --main_process_port 8"),
     ("accelerate config --main_process_port 8", "config --main_process_port 8"),
     ("accelerate-launch --num_processes 2 a.py", "--main_process_port=0 --num_processes 2 a.py"),
     ("python a.py --master-port 7", "a.py --master-port 7")],
)  # fmt: skip
def test_a_port_that_the_command_names_is_left_out(words: str, kept: str) -> None:
    assert ranks.without_ports(words.split())[1:] == kept.split()


def test_one_rank_of_a_job_is_its_command_with_one_process() -> None:
    words = "torchrun --nnodes 2 --nproc=4 --node_rank=1 --master-port 29500 a.py --nproc-per-node 3".split()
    found = ranks.of_one_rank(words)
    assert found[:3] == ["torchrun", "--nproc-per-node=1", "--nnodes=1"]
    assert found[-3:] == ["a.py", "--nproc-per-node", "3"] and not {"2", "--nproc=4", "--node_rank=1"} & {*found}


def test_one_rank_of_accelerate_is_no_multi_gpu_job() -> None:
    words = "accelerate launch --multi_gpu --num_processes=4 --num_machines 1".split()
    told = "accelerate launch --main_process_port=0 --num_processes=1 --num_machines=1".split()
    of_program = "a.py --multi_gpu --num_processes 3".split()
    assert ranks.of_one_rank([*words, *of_program]) == [*told, *of_program]


@pytest.mark.parametrize(("rank", "follows"), [(None, False), ("0", False), ("1", True), ("x", False)])
def test_rank_0_listens_and_the_others_follow(
    rank: str | None, follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    for name in ("ask", "told"):
        os.mkfifo(tmp_path / name)
    assert isinstance(inside.timed(Config(str(tmp_path))), inside.Follower) == follows


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "code"), [("        parameter.grad *= 0.5\n", 1), (ON_ONE, 6)])
def test_an_edit_is_proven_on_all_ranks(tmp_path: Path, edit: str, code: int) -> None:
    """Halving by product is as fast and equal; an update that one rank alone makes otherwise is refused."""
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
    (work / "train.py").write_text(JOB)
    (other / "train.py").write_text(JOB.replace(LAST, edit))
    command = [
        sys.executable,
        "-m",
        "gobrrr",
        "prove",
        "--minutes",
        "2",
        "-o",
        "out",
        "--with",
        str(other),
        "--",
        *TORCHRUN,
    ]
    done = subprocess.run(command, cwd=work, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    receipt = json.loads((work / "out" / "receipt.json").read_text())
    assert done.returncode in (code, 3 if code == 1 else code), done.stderr
    assert (code == 6) == any("on rank 1" in reason for reason in receipt["guard"]["reasons"]), receipt["guard"]


WRAPPED = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(*(part for _ in range(24) for part in (nn.Linear(128, 128), nn.ReLU())), nn.Linear(128, 1))
model = DistributedDataParallel(net, bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
drawn = torch.Generator().manual_seed(dist.get_rank())
for step in range(100000):
    x = torch.randn(32, 128, generator=drawn)
    loss = (model(x).squeeze(1) - x.mean(dim=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_tune_races_what_wrappers_are_given_on_all_ranks(tmp_path: Path) -> None:
    """Fifty buckets a step become one: kept, proven, and written as an edit of the source."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(WRAPPED)
    command = ["tune", "--minutes", "4", "--only", "bucket_size", "-o", str(tmp_path / "out"), "--", *TORCHRUN]
    done = subprocess.run([sys.executable, "-m", "gobrrr", *command], cwd=work, capture_output=True, text=True)
    receipt = json.loads((tmp_path / "out" / "receipt.json").read_bytes())
    assert done.returncode == 0 and receipt["kept"] == ["bucket_size"], done.stderr
    assert receipt["speedup"]["low"] > 1 and receipt["guard"]["verdict"] in ("exact", "equivalent")
    assert "+model = DistributedDataParallel(net, bucket_cap_mb=25)" in (tmp_path / "out" / "recipe.patch").read_text()


def test_a_rank_that_fails_since_rank_0_was_told_to_end_has_not_ended(tmp_path: Path) -> None:
    """Equal jobs of FSDP2 were refused: "ended after 37 steps, the program as it is makes 87"."""
    (tmp_path / "account.rank1").write_text(json.dumps({"ended": 37, "rows": []}) + "\n")
    arm = Arm(TORCHRUN, tmp_path, account=True)
    assert arm.account is not None and [each.ended for each in arm.rank_accounts()] == [None]
    arm.account.ended = 40
    assert [(each.rank, each.ended) for each in arm.rank_accounts()] == [(1, 37)]
    assert Arm(TORCHRUN, tmp_path).rank_accounts() == []
