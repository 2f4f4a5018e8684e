"""Trains a deep narrow net with torch's Adam."""

import argparse

import torch
from torch import nn


def net() -> nn.Module:
    layers = [part for _ in range(24) for part in (nn.Linear(192, 192), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(192, 1))


def train(num_steps: int) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for step in range(num_steps):
        rows = torch.randn(32, 192)
        loss = nn.functional.mse_loss(model(rows).squeeze(1), rows.mean(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
