"""Learns from a stream of measurements that two workers read from shards."""

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Measurements(IterableDataset):
    def __init__(self, shards: int = 24, rows: int = 512) -> None:
        self.shards, self.rows = range(shards), rows

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:  # <- BRR412
        for shard in self.shards:  # <- BRR412
            made = torch.Generator().manual_seed(shard)
            x = torch.randn(self.rows, 64, generator=made)
            yield from zip(x, x.square().sum(dim=1, keepdim=True), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for x, y in DataLoader(Measurements(), batch_size=128, num_workers=2):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            if step % 80 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
