"""Scores the points of a grid with a field whose activation was copied from a paper."""

import argparse

import torch
from torch import nn


class Swish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)  # <- BRR201


class Field(nn.Module):
    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.randn(width) for _ in range(depth))
        self.swish, self.out = Swish(), nn.Linear(width, 1)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        for scale in self.scales:
            points = self.swish(torch.mul(points, scale, out=points))
        return self.out(points)


@torch.inference_mode()
def score(num_steps: int) -> None:
    field = Field().eval()
    grid = torch.randn(400_000, 16)
    for step in range(num_steps):
        scores = field(grid.clone())
        if step % 20 == 0:
            print(f"grid {step:4d}  highest {scores.max().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    score(args.steps)
