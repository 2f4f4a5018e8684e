"""Learns which item of a shop a visitor looks at next, from the items before."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class NextItem(nn.Module):
    def __init__(self, items: int = 8000, width: int = 64) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.scores = nn.Linear(width, items)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.read(self.items(seen))
        return self.scores(hidden)[:, -1]  # <- BRR116


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    visits = torch.randint(0, 8000, (5000, 21))
    model = NextItem()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        batch = visits[torch.randint(0, len(visits), (32,))]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
