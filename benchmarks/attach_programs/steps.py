"""Writes when each of its steps ends: of pure Python, of training, or of training behind a loader with a worker."""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 10**8

    def __getitem__(self, index):
        return torch.full((64,), sum(i * index for i in range(2000)) % 7.0)


def python_steps():
    while True:
        yield sum(hash(str(i)) % 7 for i in range(20_000))


def training_steps(batches):
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    for x in batches:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        yield


def random_batches():
    while True:
        yield torch.randn(128, 64)


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, file = sys.argv[1:]
    loader = DataLoader(Rows(), batch_size=32, num_workers=1) if kind == "loader" else random_batches()
    steps = python_steps() if kind == "python" else training_steps(loader)
    with Path(file).open("w", buffering=1) as out:
        for _ in steps:
            out.write(f"{time.monotonic()}\n")
