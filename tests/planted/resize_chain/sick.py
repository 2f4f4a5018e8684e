"""Trains a classifier on photographs of all sizes, of which the network sees small ones."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, COMMON, SEEN, PHOTOGRAPHS = (320, 240), (800, 800), (96, 96), 64


def photographs(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    for number in range(PHOTOGRAPHS):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
        coarse.resize(SIZE, Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)
    return sorted(folder.glob("*.jpg"))


class Photographs(Dataset):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def photograph(self, index: int) -> Image.Image:
        picture = Image.open(self.paths[index]).convert("RGB")
        return picture.resize(COMMON, Image.Resampling.BILINEAR)  # <- BRR401

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self.photograph(index)
        picture = picture.resize(SEEN, Image.Resampling.BILINEAR)  # <- BRR401
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1), index % 4


def forever(loader: DataLoader):
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Photographs(photographs(Path(folder))), batch_size=8, shuffle=True)
        model = nn.Sequential(
            nn.Conv2d(3, 64, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 192, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(192, 4),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, (pixels, labels) in zip(range(args.steps), forever(loader)):
            loss = nn.functional.cross_entropy(model(pixels.float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
