"""A small ConvNeXt-like classifier; its norms want the channels last."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class ChannelNorm(nn.Module):
    """Layer norm over the channels of N x C x H x W."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.mix(self.norm(x)))


class Classifier(nn.Module):
    def __init__(self, channels: int = 32, depth: int = 6, num_classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(depth)))
        self.head = nn.Linear(channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    images = torch.randint(0, 256, (160, 3, 128, 128), dtype=torch.uint8)
    images = (images / 255 - 0.5) / 0.25
    labels = torch.randint(0, 5, (len(images),))
    model = Classifier().to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(args.steps):
        rows = torch.randint(0, len(images), (32,))
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
