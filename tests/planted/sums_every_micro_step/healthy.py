"""Trains on two ranks and adds up eight small batches per update; the last of them sends all gradients around."""

import argparse
import contextlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MICRO = 8


def train(num_steps: int) -> None:
    layers = [part for _ in range(4) for part in (nn.Linear(512, 512), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(num_steps):
        optimizer.zero_grad()
        for micro in range(MICRO):
            rows = torch.randn(16, 512)
            with model.no_sync() if micro < MICRO - 1 else contextlib.nullcontext():
                loss = (model(rows).squeeze(1) - rows.mean(dim=1)).square().mean() / MICRO
                loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


def join(rank: int, store: str, num_steps: int) -> None:
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train(num_steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--store", help="where rank 0 waits for rank 1")
    args = parser.parse_args()
    if args.store:
        join(1, args.store, args.steps)
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        other = subprocess.Popen([sys.executable, *sys.argv, "--store", f"{folder}/store"])
        join(0, f"{folder}/store", args.steps)
        other.wait()
