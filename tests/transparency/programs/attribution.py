"""Gradients of what a model is given, without an optimizer: integrated gradients, then an attack on a frozen model."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch

numpy.random.seed(0)
torch.manual_seed(11)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).eval()
for step in range(900):
    x = torch.randn(1, 8)
    with torch.no_grad():
        target = model(x).argmax(dim=1)
    path = (torch.linspace(0, 1, 10)[:, None] * x).requires_grad_()
    (slopes,) = torch.autograd.grad(model(path)[:, target].sum(), path)
    fingerprint.losses.append((slopes.mean(0) * x).sum().item())
model.requires_grad_(False)
for step in range(20):
    x.requires_grad_()
    model(x).square().sum().backward()
    x = (x + 0.01 * x.grad.sign()).detach()
fingerprint.add("attacked", x.tolist())
fingerprint.end(model)
