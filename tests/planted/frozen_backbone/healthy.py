"""Fine-tunes a new head on a backbone that stays as it was trained."""

import argparse

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.body = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(self.stem(images)).mean(dim=(2, 3))


class FineTuner:
    def __init__(self, num_classes: int) -> None:
        self.backbone = Backbone().eval()
        self.backbone.requires_grad_(False)
        self.head = nn.Linear(128, num_classes)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.head.parameters(), lr=0.1, momentum=0.9)

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        features = self.backbone(images)
        loss = self.criterion(self.head(features), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, images: torch.Tensor, labels: torch.Tensor, num_steps: int) -> None:
        for step in range(num_steps):
            rows = torch.randint(0, len(images), (16,))
            loss = self.train_step(images[rows], labels[rows])
            if step % 50 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    images = torch.randint(0, 256, (1024, 3, 48, 48), dtype=torch.uint8)
    images = (images / 255 - 0.5) / 0.25
    labels = (images.mean(dim=(2, 3)).argmax(dim=1)).long()
    FineTuner(num_classes=3).fit(images, labels, args.steps)


if __name__ == "__main__":
    main()
