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
    text = Path(os.__file__).read_bytes()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("medium")
    torch.manual_seed(0)
    text = corpus().unfold(0, 33, 1)
    model = ContextModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(args.steps):
        batch = text[torch.randint(0, len(text), (768,))]
        loss = F.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
