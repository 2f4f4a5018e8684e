"""Scores rows with layers whose bias, gate and residual follow the product, one op each."""

import argparse

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.bias, self.gate = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight
        y = y + self.bias  # <- BRR201
        y = torch.relu(y)  # <- BRR201
        y = y * self.gate  # <- BRR201
        return x + y  # <- BRR201


@torch.inference_mode()
def score(num_steps: int) -> None:
    model = nn.Sequential(*[Layer(32) for _ in range(4)], nn.Linear(32, 1)).eval()
    rows = torch.randn(200_000, 32)
    for step in range(num_steps):
        scores = model(rows)
        if step % 20 == 0:
            print(f"batch {step:4d}  highest {scores.max().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    score(args.steps)
