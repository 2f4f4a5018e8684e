"""Click-through rates from many categories, in the manner of DLRM."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
FIELDS, BATCH, ROWS, WIDTH = (4, 16, 100, 8) if TINY else (48, 8192, 10_000, 32)


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.Embedding(FIELDS * ROWS, WIDTH, sparse=False)
        self.top = nn.Sequential(nn.Linear(FIELDS * WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(),
                                 nn.Linear(256, 1))  # fmt: skip

    def forward(self, fields):
        return self.top(self.tables(fields).flatten(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Clicks().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    first = torch.arange(FIELDS) * ROWS
    days = [torch.randint(0, ROWS, (BATCH, FIELDS)) + first for _ in range(8)]
    clicked = torch.rand(BATCH, device=DEVICE).round()
    for step in range(args.steps):
        columns = [column.contiguous().to(DEVICE) for column in days[step % 8].unbind(1)]  # <- BRR502
        loss = nn.functional.binary_cross_entropy_with_logits(model(torch.stack(columns, 1)), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
