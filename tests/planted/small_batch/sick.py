"""Trains a small net on a table, eight rows at a time, sixteen times per update."""

import argparse

import torch
from torch import nn

ROWS, TIMES = 8, 16


def train(num_steps: int) -> None:
    layers = [part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    table = torch.randn(100_000, 64)
    for step in range(num_steps):
        optimizer.zero_grad()
        for rows in table[torch.randint(0, len(table), (TIMES * ROWS,))].split(ROWS):
            loss = nn.functional.mse_loss(model(rows).squeeze(1), rows.mean(dim=1)) / TIMES  # <- BRR301
            loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
