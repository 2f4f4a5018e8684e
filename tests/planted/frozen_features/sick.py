"""Trains a head on a frozen trunk of convolutions, epoch by epoch."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(8),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Linear(256, num_classes))
        self.trunk.requires_grad_(False)

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        return self.trunk(images)  # <- BRR113

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(images))  # <- BRR113


def fit(model: nn.Module, loader: DataLoader, num_steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    step = 0
    while step < num_steps:
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)  # <- BRR113
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    images = torch.rand(640, 3, 64, 64)
    labels = images.mean(dim=(2, 3)).argmax(dim=1)
    model = Tagger(num_classes=3)
    fit(model, DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True), args.steps)


if __name__ == "__main__":
    main()
