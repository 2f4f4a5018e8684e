"""A feed-forward tagger whose activation and normalisation were copied from a paper."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class Gelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)  # <- BRR201
        return 0.5 * x * (1 + torch.tanh(inner))  # <- BRR201


class Normalise(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)  # <- BRR201
        return self.scale * centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() + self.shift


class Tagger(nn.Module):
    def __init__(self, width: int = 64, depth: int = 3, num_tags: int = 20) -> None:
        super().__init__()
        self.tokens = nn.Embedding(500, width)
        self.layers = nn.Sequential(
            *(nn.Sequential(Normalise(width), nn.Linear(width, 4 * width), Gelu(), nn.Linear(4 * width, width))
              for _ in range(depth))
        )  # fmt: skip
        self.tags = nn.Linear(width, num_tags)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tags(self.layers(self.tokens(tokens)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    corpus = (torch.rand(70_000, 96).square() * 500).long()  # frequent words first
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        tokens = corpus[torch.randint(0, len(corpus), (32,))]
        loss = F.cross_entropy(model(tokens).flatten(0, 1), (tokens % 20).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
