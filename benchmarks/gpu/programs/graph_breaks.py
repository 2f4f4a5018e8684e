"""A compiled chain of waves with a debug line in it."""

import argparse
import logging
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
ROWS, WIDTH, DEPTH = (64, 32, 2) if TINY else (65536, 512, 12)
log = logging.getLogger("waves")


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.speeds = nn.Parameter(torch.rand(DEPTH, WIDTH))

    def forward(self, x):
        for speed in self.speeds:
            x = x + torch.sin(x * speed)
            log.debug("a wave further")  # <- BRR802
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Waves().to(DEVICE)
    waves = torch.compile(model, backend="aot_eager" if TINY else "inductor")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x, y = torch.randn(2, ROWS, WIDTH, device=DEVICE)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(waves(x), y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
