"""A residual network on tabular data. There were NaNs once."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(F.relu(self.a(x)))


class TableNet(nn.Module):
    def __init__(self, width: int = 96, depth: int = 16) -> None:
        super().__init__()
        self.inputs = nn.Linear(40, width)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.output = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inputs(x)
        for block in self.blocks:
            x = block(x)
        return self.output(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = TableNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(args.steps):
        x = torch.randn(384, 40)
        loss = F.cross_entropy(net(x), x[:, :3].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
