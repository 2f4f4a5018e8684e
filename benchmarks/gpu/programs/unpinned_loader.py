"""Pictures through a loader with workers."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
PINNED = False
BATCH, SIDE, WORKERS = (8, 32, 1) if TINY else (64, 224, 6)


class Pictures(Dataset):
    def __init__(self):
        self.pictures = torch.randn(16, 3, SIDE, SIDE)

    def __len__(self):
        return 40 * BATCH

    def __getitem__(self, index):
        return self.pictures[index % 16], index % 10


def net():
    wide = 16 if TINY else 1024
    return nn.Sequential(
        nn.Conv2d(3, wide, 16, stride=16),
        nn.Flatten(2),
        nn.Linear((SIDE // 16) ** 2, wide),
        nn.GELU(),
        *(nn.Sequential(nn.Linear(wide, wide), nn.GELU()) for _ in range(2 if TINY else 12)),
        nn.Flatten(),
        nn.Linear(wide * wide, 10),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    loader = DataLoader(  # <- BRR502
        Pictures(), BATCH, num_workers=WORKERS, persistent_workers=True, pin_memory=PINNED
    )
    step = 0
    while step < args.steps:
        for x, labels in loader:
            x, labels = x.to(DEVICE, non_blocking=PINNED), labels.to(DEVICE, non_blocking=PINNED)  # <- BRR502
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 40 == 0:
                print(f"step {step}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
