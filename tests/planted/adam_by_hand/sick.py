"""Trains a deep narrow net with Adam written out."""

import argparse

import torch
from torch import nn


def net() -> nn.Module:
    layers = [part for _ in range(24) for part in (nn.Linear(192, 192), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(192, 1))


def train(num_steps: int) -> None:
    model = net()
    first = [torch.zeros_like(p) for p in model.parameters()]
    second = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(1, num_steps + 1):
        rows = torch.randn(32, 192)
        loss = nn.functional.mse_loss(model(rows).squeeze(1), rows.mean(dim=1))
        loss.backward()
        with torch.no_grad():
            for p, m, v in zip(model.parameters(), first, second):
                m.mul_(0.9).add_(p.grad, alpha=0.1)  # <- BRR209
                v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)  # <- BRR209
                rate = 1e-3 / (1 - 0.9**step)
                p.sub_(rate * m / ((v / (1 - 0.999**step)).sqrt() + 1e-8))  # <- BRR209
                p.grad = None
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
