"""Trains on two ranks; after each backward pass it sums gradients over the ranks, one parameter after another."""

import argparse
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn


def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # <- BRR705
        parameter.grad /= dist.get_world_size()


def train(num_steps: int) -> None:
    layers = [part for _ in range(16) for part in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(num_steps):
        rows = torch.randn(64, 64)
        loss = (model(rows).squeeze(1) - rows.mean(dim=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average(model)
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


def join(rank: int, store: str, num_steps: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train(num_steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--store", help="where rank 0 waits for rank 1")
    args = parser.parse_args()
    if args.store:
        join(1, args.store, args.steps)
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        other = subprocess.Popen([sys.executable, *sys.argv, "--store", f"{folder}/store"])
        join(0, f"{folder}/store", args.steps)
        other.wait()
