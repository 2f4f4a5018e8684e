"""Features that are put to one scale halfway through the net."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
WIDTH, DEPTH, BATCH = (64, 2, 64) if TINY else (2048, 6, 4096)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def scaled(features):
    features = features.cpu()  # <- BRR502
    features = (features - features.mean(0)) / (features.std(0) + 1e-3)
    return features.to(DEVICE)  # <- BRR502


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    before, after = Net().to(DEVICE), Net().to(DEVICE)
    optimizer = torch.optim.SGD([*before.parameters(), *after.parameters()], lr=1e-4, fused=True)
    x, y = torch.randn(2, BATCH, WIDTH, device=DEVICE)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(after(scaled(before(x))), y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
