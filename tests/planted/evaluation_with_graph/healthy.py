"""Evaluates a segmentation network on a set of images."""

import argparse
from collections.abc import Iterator

import torch
from torch import nn


class Segmenter(nn.Module):
    def __init__(self, width: int = 32, depth: int = 14, num_classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, groups=width) for _ in range(depth))
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def image_batches(num_batches: int, batch_size: int = 16, size: int = 64) -> Iterator[torch.Tensor]:
    images = torch.randint(0, 256, (512, 3, size, size), dtype=torch.uint8)
    images = (images / 255 - 0.5) / 0.25
    for _ in range(num_batches):
        yield images[torch.randint(0, len(images), (batch_size,))]


@torch.no_grad()
def evaluate(model: nn.Module, num_batches: int) -> torch.Tensor:
    histogram = torch.zeros(4, dtype=torch.long)
    for index, images in enumerate(image_batches(num_batches)):
        classes = model(images).argmax(dim=1)
        histogram += torch.bincount(classes.flatten(), minlength=4)
        if index % 25 == 0:
            print(f"batch {index:4d}  pixels per class {histogram.tolist()}")
    return histogram


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    evaluate(Segmenter().eval(), args.steps)
