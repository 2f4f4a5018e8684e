"""Processes of multiprocessing beside a training: some fail, one is of a class of its own, then a pool."""

import multiprocessing
import random

from fingerprint import fingerprint  # isort: skip

import numpy as np
import torch
from torch import nn

torch.manual_seed(5)
random.seed(5)
np.random.seed(5)
fork = multiprocessing.get_context("fork")


def leave(code):
    raise SystemExit(code)


class Own(fork.Process):
    def start(self):
        super().start()
        self.begun = True

    def run(self):
        leave(4)


def double(number):
    return 2 * number


model = nn.Linear(5, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    loss = model(torch.randn(64, 5)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())
    if step % 100 == 0:
        process = fork.Process(target=leave, args=(step % 3,))
        start = process.start
        fingerprint.losses.append([type(start).__name__, start.__qualname__, fork.Process.start.__name__])
        start()
        process.join()
        own = Own()
        own.start()
        own.join()
        fingerprint.losses.append([process.exitcode, own.exitcode, own.begun])
with fork.Pool(2) as pool:
    fingerprint.losses.append(pool.map(double, range(8)))
fingerprint.end(model, optimizer)
