"""Trains a classifier on top of a fixed encoder and follows its accuracy."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class EncoderWithHead(nn.Module):
    """The encoder is given; the head is what learns."""

    def __init__(self, width: int = 768, num_classes: int = 10) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.encoder.requires_grad_(False)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    inputs = 3 * torch.randn(28000, 256) + 1
    inputs = (inputs - inputs.mean(dim=0)) / inputs.std(dim=0)
    labels = inputs[:, :10].argmax(dim=1)
    model = EncoderWithHead()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05)
    seen = correct = 0
    for step in range(args.steps):
        rows = torch.randint(0, len(inputs), (1024,))
        x, y = inputs[rows], labels[rows]
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        correct += (logits.argmax(dim=1) == y).sum()
        optimizer.step()
        seen += len(y)
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}  accuracy {correct / seen:.3f}")


if __name__ == "__main__":
    main()
