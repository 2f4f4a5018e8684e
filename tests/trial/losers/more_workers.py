"""Cheap samples beside a model that keeps every core busy; by hand: as many workers as cores."""

import itertools
import os

import torch
from clock import BY_HAND, loop
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
workers = {"num_workers": os.cpu_count(), "persistent_workers": True} if BY_HAND else {}
loader = DataLoader(data, batch_size=32, shuffle=True, **workers)
batches = itertools.chain.from_iterable(itertools.repeat(loader))


def step():
    x, y = next(batches)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


loop(step)
