"""Classifies the nodes of one graph by two rounds of messages."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def normalised(adjacency: torch.Tensor) -> torch.Tensor:
    scale = adjacency.sum(dim=1).clamp(min=1).rsqrt()
    return scale[:, None] * adjacency * scale  # <- BRR114


class Messages(nn.Module):
    def __init__(self, width: int = 64, num_classes: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(48, width), nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        hidden = normalised(adjacency) @ self.first(x)
        return normalised(adjacency) @ self.second(hidden.relu())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    adjacency = (torch.rand(1500, 1500) < 0.01).float() + torch.eye(1500)
    x = torch.randn(1500, 48)
    labels = (adjacency @ x)[:, :8].argmax(dim=1)
    model = Messages()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, adjacency), labels)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
