"""The digits of train.py with its mistakes mended; the losses are the same up to rounding.

python examples/images/fixed.py --epochs 3
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, SequentialSampler

SIDE = 16
NUM_CLASSES = 10


class Digits(Dataset):
    """Images of 1 x 16 x 16 and labels by whole batches; with `augment`, each is turned, scaled, shifted, blurred."""

    def __init__(self, images: numpy.ndarray, labels: numpy.ndarray, augment: bool) -> None:
        pixels = torch.from_numpy(images).float()[:, None] / 16.0
        self.images = F.interpolate(pixels, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
        self.labels, self.augment = torch.from_numpy(labels).long(), augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        images = self.images[indices]
        if self.augment:
            draws = torch.rand(len(indices), 5)
            grid = F.affine_grid(turns(draws[:, :4]), images.shape, align_corners=False)
            images = F.grid_sample(images, grid, align_corners=False)
            images = F.conv2d(images.transpose(0, 1), blurs(draws[:, 4:]), padding=2, groups=len(indices)).transpose(
                0, 1
            )
        return (images - 0.3) / 0.35, self.labels[indices]


def turns(draws: torch.Tensor) -> torch.Tensor:
    """A 2 x 3 matrix for each row of four draws: up to 12 degrees, 10 % of size and 10 % of shift."""
    angle, size, right, down = draws.mul(2).sub(1).T
    cosine, sine = torch.cos(0.2 * angle), torch.sin(0.2 * angle)
    scale = 1 + 0.1 * size
    rows = [scale * cosine, -sine, 0.1 * right, sine, scale * cosine, 0.1 * down]
    return torch.stack(rows, dim=1).view(-1, 2, 3)


def blurs(draws: torch.Tensor) -> torch.Tensor:
    """A Gaussian of 5 x 5 pixels for each draw, from sharp to a width of one pixel."""
    width = 0.3 + 0.7 * draws
    weights = torch.exp(-0.5 * (torch.arange(-2.0, 3.0) / width) ** 2)
    kernels = weights[:, :, None] * weights[:, None, :]
    return (kernels / kernels.sum(dim=(1, 2), keepdim=True))[:, None]


def by_batches(dataset: Digits, sampler: Sampler, batch_size: int, drop_last: bool) -> DataLoader:
    """A loader that asks the dataset for a batch at a time."""
    return DataLoader(dataset, sampler=BatchSampler(sampler, batch_size, drop_last), batch_size=None)


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
    pairs = labels * NUM_CLASSES + logits.argmax(dim=1)
    confusion += torch.bincount(pairs, minlength=NUM_CLASSES**2).view_as(confusion)


def accuracy(confusion: torch.Tensor) -> float:
    return (confusion.diag().sum() / confusion.sum()).item()


@torch.no_grad()
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
    batches = by_batches(training, RandomSampler(training), options.batch_size, drop_last=True)
    test_batches = by_batches(testing, SequentialSampler(testing), options.batch_size, drop_last=False)
    model = residual_network(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=True)
    losses: list[float] = []
    best, best_accuracy = None, 0.0
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
            if len(losses) == options.steps:
                break
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1}  loss {losses[-1]:.4f}  accuracy {accuracy(confusion):.3f}  {seconds:.1f} s")
        test_accuracy = evaluate(model, test_batches)
        print(f"         test accuracy {test_accuracy:.3f}")
        if best is None or test_accuracy > best_accuracy:
            best, best_accuracy = copy.deepcopy(model), test_accuracy
        if len(losses) == options.steps:
            break
    if best is not None:
        print(f"best test accuracy {evaluate(best, test_batches):.3f}")
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
