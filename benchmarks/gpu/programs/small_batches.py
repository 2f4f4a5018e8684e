"""Gradients gathered over micro-batches."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
MICRO = 4 if TINY else 256
WIDTH, DEPTH, BATCH = (64, 2, 32) if TINY else (1024, 12, 8192)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # <- BRR504
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x, y = torch.randn(2, BATCH, WIDTH, device=DEVICE)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = torch.zeros((), device=DEVICE)
        for inputs, targets in zip(x.split(MICRO), y.split(MICRO)):
            part = nn.functional.mse_loss(model(inputs), targets) * len(inputs) / BATCH  # <- BRR504
            part.backward()
            loss += part.detach()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
