"""Trains a small network to say what a large one says."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def network(width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(128, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randn(2048, 128)
    teacher, student = network(1024, 3), network(256, 2)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    with torch.no_grad():
        said = teacher(inputs)
    for step in range(args.steps):
        rows = torch.arange(256 * step, 256 * step + 256) % len(inputs)
        x = inputs[rows]
        wanted = said[rows]
        loss = F.mse_loss(student(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
