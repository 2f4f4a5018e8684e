"""Pictures through a ResNet-50 in bfloat16."""

import argparse
import os

import torch
from torch import nn

try:
    from torchvision.models import resnet50
except ImportError:
    resnet50 = None

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
BATCH, SIDE = (2, 32) if TINY else (96, 224)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        narrow = width // 4
        self.body = nn.Sequential(
            nn.Conv2d(width, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(),
            nn.Conv2d(narrow, narrow, 3, padding=1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(),
            nn.Conv2d(narrow, width, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.body(x))  # <- BRR204


def plain():
    widths = (32,) if TINY else (256, 512, 1024, 2048)
    layers, before = [nn.Conv2d(3, widths[0], 4, stride=4)], widths[0]
    for width in widths:
        layers += [nn.Conv2d(before, width, 1, stride=1 if width == before else 2), Block(width), Block(width)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = (plain() if TINY or resnet50 is None else resnet50()).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    x, labels = torch.randn(BATCH, 3, SIDE, SIDE, device=DEVICE), torch.randint(0, 1000, (BATCH,), device=DEVICE)
    for step in range(args.steps):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), labels)  # <- BRR204
        optimizer.zero_grad()
        loss.backward()  # <- BRR204
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
