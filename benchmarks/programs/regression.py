"""Fits a small net to a noisy curve; begins quickly and makes steps of a few milliseconds for as long as it is let."""

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(128, 256), torch.randn(128, 256)
for _ in range(10_000_000):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
