"""Clicks from a log: rare kinds of events are drawn more often, so that each batch has some of all."""

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

NUM_KINDS = 50


class Log(Dataset):
    """A long log of events; what the model sees of one is made from its number."""

    def __init__(self, num_events: int = 1_000_000) -> None:
        rng = np.random.default_rng(0)
        self.kinds = np.minimum(rng.geometric(0.15, num_events) - 1, NUM_KINDS - 1)
        self.table = rng.normal(0, 1, (NUM_KINDS, 256)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        kind = int(self.kinds[index])
        return self.table[kind] * (1 + index % 7), kind


class BalancedBatches(Sampler[list[int]]):
    """Batches in which each kind is as likely as any other."""

    def __init__(self, kinds: np.ndarray, batch_size: int, num_batches: int) -> None:
        counts = np.bincount(kinds, minlength=NUM_KINDS)
        self.weights = 1.0 / counts[kinds]
        self.weights /= self.weights.sum()
        self.batch_size, self.num_batches = batch_size, num_batches
        self.rng = np.random.default_rng(1)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self.num_batches):
            yield self.rng.choice(len(self.weights), self.batch_size, p=self.weights).tolist()  # <- BRR410


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    log = Log()
    loader = DataLoader(log, batch_sampler=BalancedBatches(log.kinds, 64, args.steps), num_workers=2)
    model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, NUM_KINDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, (events, kinds) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(events), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
