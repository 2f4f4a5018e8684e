"""Trains a small network on made-up rows, with dropout between its layers."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def mask_like(x: torch.Tensor) -> torch.Tensor:
    """1 with a chance of 0.9, else 0: four elements from each random number."""
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = numbers.view(torch.int16)[: x.numel()].view_as(x)
    return (bits < round(0.9 * 2**16) - 2**15).to(x.dtype)


class Net(nn.Module):
    """Layers with dropout, then a head."""

    def __init__(self, width: int = 24, depth: int = 4, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Linear(32, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        for layer in self.layers:
            x = F.relu(layer(x))
            x = x * mask_like(x) / 0.9
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randn(16384, 32)
    labels = inputs[:, :10].argmax(dim=1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for step in range(args.steps):
        rows = torch.randint(0, len(inputs), (16384,))
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
