"""Trains on pictures that lie in memory."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
BATCH, SIDE = (8, 32) if TINY else (64, 384)


def net():
    channels = 8 if TINY else 96
    return nn.Sequential(
        nn.Conv2d(3, channels, 4, stride=4),
        nn.GELU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * channels, 10),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    model = net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    pictures = torch.randn(8, BATCH, 3, SIDE, SIDE)
    labels = torch.randint(0, 10, (8, BATCH), device=DEVICE)
    for step in range(args.steps):
        x = pictures[step % 8].to(DEVICE)  # <- BRR502
        loss = nn.functional.cross_entropy(model(x), labels[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
