"""Trains a classifier on thumbnails, which lie in one file as bytes."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, THUMBNAILS = 32, 2048
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def thumbnails(folder: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (THUMBNAILS, SIDE, SIDE, 3), dtype=np.uint8)
    np.save(folder / "thumbnails.npy", pixels)
    return folder / "thumbnails.npy"


class Thumbnails(Dataset):
    def __init__(self, path: Path) -> None:
        self.pixels = list(np.load(path))

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.pixels[index]), index % 4


class Normalise(nn.Module):
    """A batch of them, by the same steps in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(MEAN)[:, None, None])
        self.register_buffer("std", torch.from_numpy(STD)[:, None, None])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        pixels = pixels.permute(0, 3, 1, 2).contiguous()
        return pixels.float().div_(255).sub_(self.mean).div_(self.std)


def forever(loader: DataLoader):
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Thumbnails(thumbnails(Path(folder))), batch_size=256, shuffle=True)
        model = nn.Sequential(
            Normalise(),
            nn.Conv2d(3, 16, 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 4),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, (pixels, labels) in zip(range(args.steps), forever(loader)):
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
