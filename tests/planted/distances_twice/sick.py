"""Learns centres for points: each point near its own centre, centres apart from other points."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Centres(nn.Module):
    def __init__(self, num_centres: int = 400, width: int = 64) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.eye(width))
        self.centres = nn.Parameter(torch.randn(num_centres, width))

    def distances(self, x: torch.Tensor) -> torch.Tensor:
        return ((x @ self.turn)[:, None, :] - self.centres).abs().mean(dim=2)

    def pull(self, x: torch.Tensor) -> torch.Tensor:
        return self.distances(x).amin(dim=1).mean()

    def push(self, x: torch.Tensor, margin: float = 0.5) -> torch.Tensor:
        return F.relu(margin - self.distances(x).mean(dim=0)).mean()  # <- BRR115


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    points = torch.randn(20000, 64)
    model = Centres()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        x = points[torch.randint(0, len(points), (160,))]
        optimizer.zero_grad()
        loss = model.pull(x) + model.push(x)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
