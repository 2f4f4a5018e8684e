"""A program that closes every descriptor it did not open itself, as daemons do, and opens files of its own."""

import os

from fingerprint import fingerprint  # isort: skip

import numpy
import torch

numpy.random.seed(0)
torch.manual_seed(3)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
files = []
for step in range(200):
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())
    if step == 120:
        os.closerange(3, 1 << 16)
        files = [open(f"own{i}.txt", "wb") for i in range(40)]
        for i in range(3, 1 << 13):  # under every number that a watcher could have had
            try:
                os.fstat(i)
            except OSError:
                os.dup2(files[0].fileno(), i)
        for file in files:
            file.write(b"mine")
            file.flush()
fingerprint.add("own", [os.path.getsize(f"own{i}.txt") for i in range(40)])
os.closerange(files[-1].fileno() + 1, 1 << 16)
fingerprint.end(model, optimizer)
