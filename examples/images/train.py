"""A small residual network that reads handwritten digits. It learns, and slower than it need: see README.md.

python examples/images/train.py --epochs 3
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 16
NUM_CLASSES = 10


class Digits(Dataset):
    """Images of 1 x 16 x 16 and their labels; with `augment`, each is turned, scaled, shifted and blurred a little."""

    def __init__(self, images: numpy.ndarray, labels: numpy.ndarray, augment: bool) -> None:
        self.images, self.labels, self.augment = images, labels, augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.tensor(self.images[index] / 16.0, dtype=torch.float32)
        image = F.interpolate(image[None, None], size=(SIDE, SIDE), mode="bicubic", align_corners=False)
        if self.augment:
            grid = F.affine_grid(random_turn(), (1, 1, SIDE, SIDE), align_corners=False)
            image = F.grid_sample(image, grid, align_corners=False)
            image = F.conv2d(image, random_blur(), padding=2)
        image = (image - 0.3) / 0.35
        return image[0], int(self.labels[index])


def random_turn() -> torch.Tensor:
    """One 2 x 3 matrix: up to 12 degrees, 10 % of size and 10 % of shift."""
    angle, size, right, down = torch.rand(4).mul(2).sub(1).tolist()
    cosine, sine = math.cos(0.2 * angle), math.sin(0.2 * angle)
    scale = 1 + 0.1 * size
    return torch.tensor([[[scale * cosine, -sine, 0.1 * right], [sine, scale * cosine, 0.1 * down]]])


def random_blur() -> torch.Tensor:
    """One Gaussian of 5 x 5 pixels, from sharp to a width of one pixel."""
    width = 0.3 + 0.7 * torch.rand(1)
    weights = torch.exp(-0.5 * (torch.arange(-2.0, 3.0) / width) ** 2)
    kernel = torch.outer(weights, weights)
    return (kernel / kernel.sum())[None, None]


class Residual(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the image."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def residual_network(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, NUM_CLASSES),
    )


def count_confusions(confusion: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
    """Add to the table how often a digit (row) was read as another (column)."""
    guesses = logits.argmax(dim=1)
    for label, guess in zip(labels, guesses):
        confusion[label, guess] += 1


def accuracy(confusion: torch.Tensor) -> float:
    return (confusion.diag().sum() / confusion.sum()).item()


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    confusion = torch.zeros(NUM_CLASSES, NUM_CLASSES)
    for images, labels in loader:
        count_confusions(confusion, model(images), labels)
    model.train()
    return accuracy(confusion)


def digits(augment_training: bool = True) -> tuple[Digits, Digits]:
    """Four fifths to train on, the rest to test."""
    data = numpy.load(Path(__file__).with_name("digits.npz"))
    images, labels = data["images"], data["labels"]
    cut = len(labels) * 4 // 5
    return Digits(images[:cut], labels[:cut], augment_training), Digits(images[cut:], labels[cut:], False)


def train(options: argparse.Namespace) -> list[float]:
    """Train for `options.epochs` epochs, or `options.steps` steps if fewer, and return the loss of each step."""
    torch.manual_seed(options.seed)
    training, testing = digits()
    batches = DataLoader(training, batch_size=options.batch_size, shuffle=True, drop_last=True, num_workers=0)
    test_batches = DataLoader(testing, batch_size=options.batch_size, num_workers=0)
    model = residual_network(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    losses: list[float] = []
    best, best_loss = None, float("inf")
    for epoch in range(options.epochs):
        confusion = torch.zeros(NUM_CLASSES, NUM_CLASSES)
        started = time.perf_counter()
        for images, labels in batches:
            optimizer.zero_grad()
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            count_confusions(confusion, logits, labels)
            if losses[-1] < best_loss:
                best, best_loss = copy.deepcopy(model), losses[-1]
            if len(losses) == options.steps:
                break
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1}  loss {losses[-1]:.4f}  accuracy {accuracy(confusion):.3f}  {seconds:.1f} s")
        print(f"         test accuracy {evaluate(model, test_batches):.3f}")
        if len(losses) == options.steps:
            break
    if best is not None:
        print(f"best loss {best_loss:.4f}, test accuracy {evaluate(best, test_batches):.3f}")
    return losses


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=8, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


if __name__ == "__main__":
    train(options())
