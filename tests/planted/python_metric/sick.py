"""Segments synthetic scans and follows the confusion matrix while it trains."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

NUM_CLASSES = 4


def confusion(predicted: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    cells = {(truth, guess): 0 for truth in range(NUM_CLASSES) for guess in range(NUM_CLASSES)}
    for truth, guess in zip(expected.flatten().tolist(), predicted.flatten().tolist()):
        cells[truth, guess] += 1  # <- BRR302
    return torch.tensor(list(cells.values())).view(NUM_CLASSES, NUM_CLASSES)


def scans(num: int = 420, size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.rand(num, 1, size, size)
    smooth = F.avg_pool2d(images, 9, stride=1, padding=4)
    return images, (smooth.squeeze(1) * 40 - 18).clamp(0, 3).to(torch.uint8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    images, tissues = scans()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, NUM_CLASSES, 1),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    total = torch.zeros(NUM_CLASSES, NUM_CLASSES, dtype=torch.long)
    for step in range(args.steps):
        rows = torch.randint(0, len(images), (4,))
        classes = tissues[rows].long()
        scores = net(images[rows])
        loss = F.cross_entropy(scores, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += confusion(scores.argmax(dim=1), classes)
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}  pixel accuracy {total.trace() / total.sum():.3f}")


if __name__ == "__main__":
    main()
