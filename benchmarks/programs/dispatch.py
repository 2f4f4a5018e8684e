"""Trains a net so small that a step is dispatch: some hundred microseconds, for as long as it is let."""

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(16, 8), torch.randn(16, 1)
for _ in range(100_000_000):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
