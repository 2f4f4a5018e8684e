"""A job of two ranks under torchrun; the second one makes its batches with more care. `even`: neither does."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def batch(careful):
    x = torch.randn(64, 128)
    if careful:
        for row in x.repeat(4, 1):
            x.add_(row.sort().values.mean() * 1e-6)  # here
    return x


dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    x = batch(dist.get_rank() == 1 and "even" not in sys.argv)
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
