"""Segmentation with a small U-Net that gives its memory back after every step."""

import argparse
import gc
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
WIDTH, SIDE, BATCH = (4, 16, 2) if TINY else (64, 192, 16)


def pair(before, width):
    return nn.Sequential(nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                         nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())  # fmt: skip


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = pair(3, WIDTH), pair(WIDTH, 2 * WIDTH), pair(3 * WIDTH, WIDTH)
        self.head = nn.Conv2d(WIDTH, 2, 1)

    def forward(self, x):
        high = self.first(x)
        low = nn.functional.interpolate(self.second(nn.functional.max_pool2d(high, 2)), scale_factor=2)
        return self.head(self.last(torch.cat([high, low], 1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Unet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    x, mask = torch.randn(BATCH, 3, SIDE, SIDE, device=DEVICE), torch.randint(0, 2, (BATCH, SIDE, SIDE), device=DEVICE)
    for step in range(args.steps):
        loss = nn.functional.cross_entropy(model(x), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gc.collect()  # <- BRR306
        torch.cuda.empty_cache()  # <- BRR602
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
