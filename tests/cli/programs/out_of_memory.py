"""Dies of memory under the limit that it gives itself: `argv[1]` says how."""

import resource
import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 1024), nn.Linear(1024, 64)

    def forward(self, x):
        h = torch.relu(self.up(x))
        return x + self.down(h)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def evaluate(scale):
    total = 0.0
    for _ in range(400):  # one large result a round, so that it is always this op that finds no room
        total += torch.exp(scale.expand(4 << 20)).sum()
    return total


how = sys.argv[1]
used = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData"))) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (256 << 20),) * 2)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
kept = []
if how == "sums":
    evaluate(nn.Parameter(torch.zeros(())))
for step in range(100):
    rows = 16384 if how == "large" and step >= 3 else 64
    if how == "keeps":
        kept.append(torch.zeros(4 << 20))
    if how == "catches":
        try:
            torch.empty(1 << 40)
        except RuntimeError:
            print("went on")
        break
    loss = model(torch.randn(rows, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if how == "numpy" and step == 3:
        import numpy as np

        np.ones((1 << 20, 1 << 10))
