"""A classifier that keeps a table of confusions as it trains."""

import argparse
import os

import numpy as np
import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
WIDTH, DEPTH, BATCH, CLASSES = (32, 2, 64, 5) if TINY else (2048, 6, 8192, 100)
EVERY = 1


def confusions(scores, labels):
    table = np.zeros((CLASSES, CLASSES), dtype=int)
    for said, right in zip(scores.argmax(1).tolist(), labels.tolist()):  # <- BRR302
        table[right, said] += 1  # <- BRR302
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    body = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*body, nn.Linear(WIDTH, CLASSES)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x, labels = torch.randn(BATCH, WIDTH, device=DEVICE), torch.randint(0, CLASSES, (BATCH,), device=DEVICE)
    table = np.zeros((CLASSES, CLASSES), dtype=int)
    for step in range(args.steps):
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            table += confusions(scores.detach().cpu(), labels.cpu())  # <- BRR302
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  right {table.trace() / table.sum():.3f}")


if __name__ == "__main__":
    main()
