"""Scores rows with layers whose bias is part of the product, gate and residual one op."""

import argparse

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.bias, self.gate = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.addmm(self.bias, x, self.weight).relu_()
        return torch.addcmul(x, y, self.gate, out=y)


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
