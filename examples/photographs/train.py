"""Trains a small convolutional network on JPEG files: opened, made small, mirrored now and then, scaled and normalised
one by one as they are drawn. Writes its pictures (of smoothed noise) into --folder when they are not there."""

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 4
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def make(folder, num=256, size=(500, 375)):
    """As large as ImageNet's usual ones; each class has its own graininess."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for number in range(num):
        path = folder / f"{number % CLASSES}-{number:04}.jpg"
        if path.exists():
            continue
        scale = 4 << number % CLASSES
        coarse = draw.integers(0, 255, (size[1] // scale + 2, size[0] // scale + 2, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path, quality=90)


class Photographs(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        picture = Image.open(path).convert("RGB").resize((112, 84), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            picture = ImageOps.mirror(picture)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return (pixels - MEAN) / STD, int(path.name[0])


def network():
    layers = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    for width in (16, 32, 64):
        layers += [nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("pictures"))
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    make(args.folder)
    torch.manual_seed(0)
    random.seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(Photographs(args.folder), batch_size=32, shuffle=True)
    for epoch in range(args.epochs):
        for pixels, labels in loader:
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
