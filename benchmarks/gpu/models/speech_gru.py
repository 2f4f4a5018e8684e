"""Frames of speech through a recurrent net, word by word."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
BATCH, LENGTH, WIDTH = (4, 8, 16) if TINY else (64, 160, 256)


class Cell(nn.GRUCell):
    def forward(self, x):
        hidden, found = x.new_zeros(BATCH, WIDTH), []
        for frame in x.unbind(1):
            hidden = super().forward(frame, hidden)  # <- BRR504
            found.append(hidden)
        return torch.stack(found, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    rnn, head = Cell(WIDTH, WIDTH), nn.Linear(WIDTH, 40)
    model = nn.Sequential(rnn, head).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, labels = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE), torch.randint(0, 40, (BATCH, LENGTH), device=DEVICE)
    for step in range(args.steps):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
