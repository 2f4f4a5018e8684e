"""Next-word prediction from the words' vectors alone."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
VOCABULARY = 5001 if TINY else 50257
WIDTH = 63 if TINY else 1023
DEPTH, WORDS = (1, 128) if TINY else (4, 8192)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = torch.relu(layer(x))  # <- BRR109
        return self.head(x)  # <- BRR109


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Words().to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    ids, labels = torch.randint(0, 1000, (2, WORDS), device=DEVICE)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
