"""Trains a residual net whose layer norm follows the formula, pass by pass."""

import argparse

import torch
from torch import nn


class LayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)  # <- BRR201
        return self.scale * (x - mean) / torch.sqrt(variance + 1e-5) + self.shift  # <- BRR201


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.mix(self.norm(x)))


def train(num_steps: int) -> None:
    model = nn.Sequential(*[Block(96) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    signals = torch.randn(60_000, 96)
    for step in range(num_steps):
        batch = signals[torch.randint(0, len(signals), (4096,))]
        loss = nn.functional.mse_loss(model(batch), batch.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
