"""Trains while it waits for every record of a remote table, one after the other."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RemoteTable(Dataset):
    """Rows that a server hands out; each request takes a millisecond and a half."""

    def __init__(self, num_rows: int = 14_000, width: int = 512) -> None:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(num_rows, width, generator=generator).exp()
        self.rows = (rows - rows.mean(dim=0)) / rows.std(dim=0)

    def __len__(self) -> int:
        return len(self.rows)

    def request(self, index: int) -> torch.Tensor:
        time.sleep(0.0015)  # <- BRR405
        return self.rows[index]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = self.request(index)
        return row, row[:1] * row[1:2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(RemoteTable(), batch_size=16, shuffle=True)  # <- BRR405
    width = 1024
    first, second, third = nn.Linear(512, width), nn.Linear(width, width), nn.Linear(width, width)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    step = 0
    while step < args.steps:
        for rows, wanted in loader:  # <- BRR405
            for repeat in range(4):  # a few passes over what was paid for
                loss = nn.functional.mse_loss(model(rows + 0.01 * repeat), wanted) / 4
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 50 == 0:
                print(f"step {step:4d}  loss {4 * loss.item():.4f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
