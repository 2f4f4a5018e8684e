"""Two worker processes that augment with all three random streams, and draws made between iter() and next()."""

import random

from fingerprint import fingerprint  # isort: skip

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

torch.manual_seed(3)
random.seed(3)
np.random.seed(3)
asked = []


class Augmented(Dataset):
    def __len__(self):
        asked.append("len")
        return 48

    def __getitem__(self, index):
        draws = [random.random(), np.random.rand(), torch.rand(()).item(), float(torch.initial_seed() % 1000)]
        return torch.tensor([index, *draws], dtype=torch.float64), traced()


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(6):
            yield torch.tensor([info.id if info else -1, i, random.random()], dtype=torch.float64), traced()


def traced():
    return torch.tensor([sys.gettrace() is not None, torch._C._autograd._profiler_enabled()], dtype=torch.int64)


model = nn.Linear(5, 2).double()
optimizer = torch.optim.Adam(model.parameters())
for workers, persistent in ((2, False), (2, True), (0, False)):
    loader = DataLoader(
        Augmented(), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=persistent,
        worker_init_fn=lambda worker: random.seed(torch.initial_seed() + worker),
    )  # fmt: skip
    for _ in range(14 if workers and not persistent else 2):
        iterator = iter(loader)
        between = torch.rand(2)
        fingerprint.losses.append([between, len(iterator), type(iterator).__qualname__])
        for x, states in iterator:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            fingerprint.losses.append([x, states, loss.item()])
for x, states in DataLoader(Stream(), batch_size=2, num_workers=1):
    fingerprint.losses.append([x, states])
fingerprint.add("asked", len(asked))
fingerprint.end(model, optimizer)
