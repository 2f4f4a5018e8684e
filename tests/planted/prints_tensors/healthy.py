"""Fits a mixture-density regression; the author still watches the gradients."""

import argparse

import torch
from torch import nn


def negative_log_likelihood(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    weight, mean, log_scale = out.chunk(3, dim=1)
    distance = -0.5 * ((y - mean) / log_scale.exp()).square() - log_scale
    return -(weight.log_softmax(dim=1) + distance).logsumexp(dim=1).mean()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
args = parser.parse_args()
torch.manual_seed(0)

table = torch.randn(180_000, 40).exp()
table = (table - table.mean(dim=0)) / table.std(dim=0)
net = nn.Sequential(nn.Linear(40, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 24))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

for step in range(args.steps):
    x = table[torch.randint(0, len(table), (512,))]
    y = x[:, :1].sin() + 0.1 * torch.randn(512, 1)
    loss = negative_log_likelihood(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} largest gradient {net[0].weight.grad.abs().max().item():.4f}")
