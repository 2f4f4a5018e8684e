"""Finds the nearest catalogue entry for every query of a stream of batches."""

import argparse

import torch
from torch import nn


class NearestEntry(nn.Module):
    def __init__(self, num_entries: int = 120_000, width: int = 16, batch_size: int = 128) -> None:
        super().__init__()
        self.register_buffer("catalogue", nn.functional.normalize(torch.randn(num_entries, width), dim=1))
        self.register_buffer("scores", torch.empty(batch_size, num_entries), persistent=False)

    def forward(self, queries: torch.Tensor) -> torch.Tensor:
        scores = torch.mm(queries, self.catalogue.T, out=self.scores)
        return scores.argmax(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    search = NearestEntry().eval()
    found = set()
    with torch.no_grad():
        for step in range(args.steps):
            nearest = search(torch.randn(128, 16))
            if step % 40 == 0:
                found.update(nearest.tolist())
                print(f"batch {step:4d}  different entries {len(found)}")


if __name__ == "__main__":
    main()
