"""A deep residual net of small layers, its weights updated by AdamW."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
WIDTH, DEPTH, BATCH = (16, 6, 8) if TINY else (512, 96, 1024)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.body = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.relu(self.body(self.norm(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = nn.Sequential(*(Residual() for _ in range(DEPTH))).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)  # <- BRR208
    x, y = torch.randn(2, BATCH, WIDTH, device=DEVICE)
    for step in range(args.steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- BRR208
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
