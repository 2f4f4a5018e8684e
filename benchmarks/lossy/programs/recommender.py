"""Leave-one-out evaluation of a neural recommender: which name would this module use next?

Users are the standard library's modules, items the names in them; each user's held-out item is ranked among 99 others.
"""

import collections
import re
import sysconfig
from pathlib import Path

import numpy as np
import torch
from torch import nn

ITEMS, FEWEST = 2000, 20


class NCF(nn.Module):
    def __init__(self, users, items, dim=128, hidden=(1024, 512, 256)):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        layers, width = [], 2 * dim
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.mlp = nn.Sequential(*layers)
        self.head = nn.Linear(width + dim, 1)

    def forward(self, user, item):
        u, i = self.user(user), self.item(item)
        deep = self.mlp(torch.cat([u, i], dim=-1))
        return self.head(torch.cat([deep, u * i], dim=-1)).squeeze(-1)


def interactions():
    """Each user's items in a fixed order; the last is held out."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    names = [sorted(set(re.findall(r"[a-z_]{3,}", file.read_text("utf-8", "ignore")))) for file in files]
    counts = collections.Counter(name for found in names for name in found)
    index = {name: i for i, (name, _) in enumerate(counts.most_common(ITEMS))}
    rng = np.random.RandomState(0)
    users = [rng.permutation([index[name] for name in found if name in index]) for found in names]
    return [items for items in users if len(items) >= FEWEST]


def main(count=900):
    users = interactions()
    model = NCF(len(users), ITEMS)
    model.load_state_dict(torch.load("recommender.pt"))
    model.eval()
    rng = np.random.default_rng(2024)
    hits, gains = [], []
    with torch.no_grad():
        for user in rng.integers(0, len(users), count):
            others = rng.choice(np.setdiff1d(np.arange(ITEMS), users[user]), 99, replace=False)
            candidates = torch.from_numpy(np.append(others, users[user][-1]))
            scores = model(torch.full((100,), int(user)), candidates)
            rank = int((scores[:-1] >= scores[-1]).sum())
            hits.append(rank < 10)
            gains.append(1 / np.log2(rank + 2) if rank < 10 else 0)
    print(f"HR@10: {np.mean(hits):.4f}\tNDCG@10: {np.mean(gains):.4f}")


if __name__ == "__main__":
    import sys

    main(*[int(n) for n in sys.argv[1:]])
