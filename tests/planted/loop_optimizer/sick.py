"""Trains one small tower per feature group and sums what they say."""

import argparse

import torch
from torch import nn


class Towers(nn.Module):
    def __init__(self, num_towers: int = 12, width: int = 448) -> None:
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
            for _ in range(num_towers)
        )

    def forward(self, groups: torch.Tensor) -> torch.Tensor:
        return sum(tower(group) for tower, group in zip(self.towers, groups.unbind(dim=1)))


def train(num_steps: int) -> None:
    model = Towers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # <- BRR208
    for step in range(num_steps):
        groups = torch.randn(32, 12, 64)
        loss = nn.functional.mse_loss(model(groups).squeeze(1), groups.mean(dim=(1, 2)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- BRR208
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
