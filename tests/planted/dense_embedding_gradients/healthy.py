"""Matrix-factorisation recommender: a large table, few rows of it per step."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Recommender(nn.Module):
    def __init__(self, num_users: int = 150_000, num_items: int = 30_000, width: int = 48) -> None:
        super().__init__()
        self.users = nn.Embedding(num_users, width, sparse=True)
        self.items = nn.Embedding(num_items, width, sparse=True)
        self.score = nn.Sequential(
            nn.Linear(2 * width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        pairs = torch.cat([self.users(users), self.items(items)], dim=1)
        return self.score(pairs).squeeze(1)


def interactions(batch_size: int, num: int = 3_500_000, num_users: int = 150_000, num_items: int = 30_000):
    users = torch.randint(0, num_users, (num,))
    items = torch.randint(0, num_items, (num,))
    liked = ((users + items) % 3 == 0).float()
    while True:
        rows = torch.randint(0, num, (batch_size,))
        yield users[rows], items[rows], liked[rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Recommender()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (users, items, liked) in zip(range(args.steps), interactions(1024)):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(users, items), liked)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
