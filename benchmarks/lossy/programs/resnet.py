"""Accuracy of a small ResNet on the test half of scikit-learn's digits, shifted and noisy."""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, fan_in, fan_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(fan_out)
        self.down = None
        if stride != 1 or fan_in != fan_out:
            self.down = nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False), nn.BatchNorm2d(fan_out))

    def forward(self, x):
        shortcut = x if self.down is None else self.down(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet(nn.Module):
    def __init__(self, classes=10, width=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = nn.Sequential(Block(width, width), Block(width, width))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(x.mean((2, 3)))


def digits(train):
    data = load_digits()
    images = F.interpolate(torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, size=16, mode="bilinear")
    chosen = slice(0, 1000) if train else slice(1000, None)
    return images[chosen], torch.tensor(data.target)[chosen]


def augment(images, rng, noise=0.3):
    shift = tuple(int(n) for n in rng.integers(-2, 3, 2))
    return torch.roll(images, shift, (2, 3)) + noise * torch.tensor(
        rng.standard_normal(images.shape), dtype=torch.float32
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", default="resnet.pt")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--images", type=int, default=2400, help="drawn, each with its own noise")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    model = ResNet()
    model.load_state_dict(torch.load(args.weights))
    model.eval()
    images, labels = digits(train=False)
    drawn = rng.integers(0, len(images), args.images)
    loader = DataLoader(TensorDataset(images[drawn], labels[drawn]), batch_size=args.batch_size)
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            logits = model(augment(images, rng))
            correct += (logits.argmax(1) == labels).sum().item()
            total += len(labels)
    print(f"{total} images, accuracy: {100 * correct / total:.2f}%")


if __name__ == "__main__":
    main()
