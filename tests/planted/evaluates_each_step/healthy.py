"""Trains a small network and follows how well it does on what it has not seen."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    right = 0
    for begin in range(0, len(x), 512):
        guess = model(x[begin : begin + 512]).argmax(dim=1)
        right += int((guess == y[begin : begin + 512]).sum())
    model.train()
    return right / len(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randn(11500, 128)
    labels = inputs[:, :10].argmax(dim=1)
    held_x, held_y = inputs[10000:], labels[10000:]
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(args.steps):
        rows = torch.randint(0, 10000, (512,))
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            score = accuracy(model, held_x, held_y)
            print(f"step {step:4d}  loss {loss.item():.3f}  accuracy {score:.3f}")


if __name__ == "__main__":
    main()
