"""A program that decodes and resizes JPEG pictures as they come, and with --pairs its
`__getitem__` as it is and with drafts by turns. Needs Pillow; writes its pictures into --folder."""

import argparse
import time
from pathlib import Path
from statistics import quantiles

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def make(folder, num=64, size=(1600, 1200)):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(num):
        path = folder / f"{number}.jpg"
        if path.exists():
            continue
        whole = np.zeros((size[1], size[0], 3), np.float32)
        for scale in (4, 16, 64, 256):
            coarse = rng.normal(size=(size[1] // scale + 2, size[0] // scale + 2, 3)).astype(np.float32)
            bands = [
                np.asarray(Image.fromarray(coarse[..., c]).resize(size, Image.Resampling.BICUBIC)) for c in range(3)
            ]
            whole += np.stack(bands, -1) * scale**0.7
        whole = (whole - whole.min()) / (whole.max() - whole.min())
        Image.fromarray((255 * whole).astype(np.uint8)).save(path, quality=90)


class Photographs(Dataset):
    drafts = False

    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with self.paths[index].open("rb") as file:
            picture = Image.open(file)
            if self.drafts:
                picture.draft("RGB", (224, 168))
            picture = picture.convert("RGB")
        small = picture.resize((224, 168), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).float() / 255
        return pixels, index % 4


def pairs(folder):
    torch.set_num_threads(1)
    for size in ((1600, 1200), (500, 375)):
        make(folder / str(size[0]), 16, size)
        data, found = Photographs(folder / str(size[0])), []

        def batch(data=data):
            began = time.perf_counter()
            for index in range(16):
                data[index]
            return (time.perf_counter() - began) / 16 * 1e3

        def drafted(data=data, batch=batch):
            data.drafts = True
            took = batch()
            data.drafts = False
            return took

        batch(), drafted()
        for number in range(31):
            first = batch() if number % 2 else None
            small = drafted()
            found.append((first or batch(), small))
        for label, each in (
            ("plain, ms", [a for a, _ in found]), ("draft, ms", [b for _, b in found]),
            ("ratio", [a / b for a, b in found]),
        ):  # fmt: skip
            low, middle, high = quantiles(each, n=4)
            print(f"{size[0]} x {size[1]} {label}: {middle:.2f} ({low:.2f} to {high:.2f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--pairs", action="store_true")
    args = parser.parse_args()
    if args.pairs:
        pairs(args.folder)
        return
    make(args.folder)
    torch.manual_seed(0)
    loader = DataLoader(Photographs(args.folder), batch_size=8, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        for pixels, labels in loader:
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
