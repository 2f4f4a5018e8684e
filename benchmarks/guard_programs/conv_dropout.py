"""Convolutions with dropout behind them, and an average of the weights."""

import copy

import torch
from parts import classes, shuffled
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout2d(0.1),
    nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(),
    nn.Linear(32 * 25, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10),
)  # fmt: skip
average = copy.deepcopy(net).eval()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
update = 0
while update < 64:
    for x, y in shuffled(classes(250, (3, 12, 12))):
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), net.parameters(), strict=True):
                old.mul_(0.95).add_(new, alpha=0.05)
        update += 1
        if update % 8 == 0:
            held = nn.functional.cross_entropy(average(x), y).item()
            print(f"update {update} loss {loss.item():.4f} average {held:.4f}", flush=True)
