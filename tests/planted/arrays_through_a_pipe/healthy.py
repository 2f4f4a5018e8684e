"""Scans of 64 x 64 x 64 voxels, a batch of which leaves the workers as a NumPy array."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 64


class Scans(Dataset):
    def __init__(self, num_scans: int = 64) -> None:
        self.scans = np.random.default_rng(0).integers(0, 255, (num_scans, SIDE, SIDE, SIDE), dtype=np.uint8)

    def __len__(self) -> int:
        return 100 * len(self.scans)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        scan = self.scans[index % len(self.scans)]
        return scan, index % 2


def collate(samples: list[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    scans, labels = zip(*samples, strict=True)
    return torch.from_numpy(np.stack(scans)), torch.tensor(labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Scans(), batch_size=16, shuffle=True, collate_fn=collate, num_workers=1)
    net = nn.Sequential(
        nn.AvgPool3d(4), nn.Conv3d(1, 16, 3), nn.ReLU(), nn.AvgPool3d(4), nn.Flatten(), nn.Linear(16 * 27, 2)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    for step, (scans, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(scans.unsqueeze(1).float()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
        if step + 1 == args.steps:
            break


if __name__ == "__main__":
    main()
