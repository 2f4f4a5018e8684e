"""Compiled simulation of coupled oscillators with a guard against explosions."""

import argparse

import torch
from torch import nn


class Oscillators(nn.Module):
    def __init__(self, num: int = 2_000_000) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.rand(num))
        self.damping = nn.Parameter(torch.rand(num) * 0.1)

    def forward(self, position: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            force = -self.frequency * position - self.damping * speed
            speed = speed + 0.05 * force.tanh()
            position = position + 0.05 * speed
            if position[0].item() > 1e3:  # <- BRR802
                raise FloatingPointError("the simulation exploded")
        return position


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    oscillators = Oscillators()
    simulate = torch.compile(oscillators)  # <- BRR802
    optimizer = torch.optim.SGD(oscillators.parameters(), lr=0.1)
    start, target = torch.randn(2_000_000), torch.randn(2_000_000)
    for step in range(args.steps):
        loss = (simulate(start, torch.zeros_like(start)) - target).square().mean()  # <- BRR802
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
