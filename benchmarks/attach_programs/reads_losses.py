"""Reads the norm of every gradient in every step, one value at a time."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(48, 48), nn.ReLU()) for _ in range(60)), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    x = torch.randn(32, 48)
    loss = (model(x) - x.mean(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    worst = 0.0
    for parameter in model.parameters():
        worst = max(worst, *(row.abs().max().item() for row in parameter.grad.view(-1, parameter.shape[-1])))  # here
    optimizer.step()
