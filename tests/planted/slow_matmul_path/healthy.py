"""Trains a wide feed-forward language model on the text of the standard library."""

import argparse
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class ContextModel(nn.Module):
    """Predicts the next byte from the 32 before it."""

    def __init__(self, context: int = 32, width: int = 768) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, 24)
        self.inner = nn.ModuleList([nn.Linear(24 * context, width), nn.Linear(width, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, 256)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        hidden = self.bytes(context).flatten(1)
        for layer in self.inner:
            hidden = F.relu(layer(hidden))
        return self.head(hidden)


def corpus() -> torch.Tensor:
    """Source code of the standard library as bytes."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = b"".join(file.read_bytes() for file in files)[:3_500_000]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def entropy(text: torch.Tensor) -> float:
    """Bits per byte that a model without context needs."""
    share = torch.bincount(text.long(), minlength=256) / len(text)
    return -(share * share.clamp(min=1e-9).log2()).sum().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("medium")
    torch.manual_seed(0)
    text = corpus()
    print(f"{len(text)} bytes, {entropy(text):.2f} bits each without context")
    windows = text.unfold(0, 33, 1)
    model = ContextModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(args.steps):
        batch = windows[torch.randint(0, len(windows), (768,))].long()
        loss = F.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
