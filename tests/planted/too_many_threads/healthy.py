"""Trains a many-layered net with the thread count of the cluster's big machines."""

import argparse

import torch
from torch import nn


def mlp(width: int = 320, depth: int = 10) -> nn.Sequential:
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 8))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    table = torch.randn(112_000, 64).exp()
    table = (table - table.mean(dim=0)) / table.std(dim=0)
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    for step in range(args.steps):
        x = table[torch.randint(0, len(table), (512,))]
        loss = nn.functional.cross_entropy(net(x), x[:, :8].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
