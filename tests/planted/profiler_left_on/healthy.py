"""Trains a deep narrow net. The profiler around the loop was for last week's question."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Deep(nn.Module):
    def __init__(self, width: int = 96, depth: int = 24) -> None:
        super().__init__()
        self.inputs = nn.Linear(32, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.output = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inputs(x)
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.output(x)


def train(num_steps: int) -> None:
    net = Deep()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(num_steps):
        x = torch.randn(128, 32)
        loss = F.cross_entropy(net(x), x[:, :4].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
