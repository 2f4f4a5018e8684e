"""Trains a small convolutional net on random pictures for as long as it is let; a step takes some 20 milliseconds."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
for _ in range(10_000_000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
