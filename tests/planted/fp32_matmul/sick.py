"""Scores candidate documents with a deep feed-forward ranker."""

import argparse

import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, width: int = 1024, depth: int = 6) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.score = nn.Linear(width, 1)

    def forward(self, documents: torch.Tensor) -> torch.Tensor:
        for layer in self.hidden:
            documents = layer(documents).relu_()  # <- BRR102
        return self.score(documents)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Ranker().eval()
    best = 0.0
    with torch.inference_mode():
        for step in range(args.steps):
            documents = torch.randn(512, 1024)
            scores = model(documents)
            if step % 40 == 0:
                best = max(best, scores.max().item())
                print(f"batch {step:4d}  best score {best:.4f}")


if __name__ == "__main__":
    main()
