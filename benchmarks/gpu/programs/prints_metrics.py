"""A classifier that tells its classes' recall."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
EVERY = 1
WIDTH, DEPTH, BATCH, CLASSES = (64, 2, 64, 5) if TINY else (2048, 8, 4096, 100)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = nn.Sequential(Net(), nn.Linear(WIDTH, CLASSES)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x, labels = torch.randn(BATCH, WIDTH, device=DEVICE), torch.randint(0, CLASSES, (BATCH,), device=DEVICE)
    for step in range(args.steps):
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            right = scores.argmax(1) == labels
            for each in range(CLASSES):
                print(f"step {step}  class {each}  recall {right[labels == each].float().mean()}")  # <- BRR305


if __name__ == "__main__":
    main()
