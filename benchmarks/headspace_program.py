"""A loader without workers and its step, as a program that somebody wrote: `gobrrr tune` is given it by
benchmarks/headspace.py. NAME is a pipeline of loadermodel_pipelines.py, or one of those below.

    python benchmarks/headspace_program.py NAME
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import loadermodel_pipelines as others
from benchmarks.loadermodel_pipelines import LENGTH, Items, Made, trained

EPOCHS = 1000


class Reader(nn.Module):
    """Words of a row, their mean, two layers."""

    def __init__(self, words: int = 8000, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.classes = nn.Sequential(
            nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.classes(self.words(tokens).mean(1))


def skewed_texts() -> Made:
    """Pages of log-normal lengths, cut into words by a regular expression, padded to the longest of a batch."""
    text = "".join(file.read_text(errors="replace") for file in sorted(Path(json.__file__).parents[1].glob("*.py")))
    draw, words = np.random.default_rng(0), re.compile(r"[A-Za-z_]+|\d+|[^\sA-Za-z_\d]")
    sizes = np.clip(draw.lognormal(9.0, 1.0, 4096), 40, 40_000).astype(int)
    starts = draw.integers(0, len(text) - 40_000, 4096)

    def item(index: int) -> tuple[torch.Tensor, int]:
        at = starts[index % 4096]
        found = words.findall(text[at : at + sizes[index % 4096]])[:256]
        return torch.tensor([hash(word) % 8000 for word in found] or [0]), index % 10

    def collate(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return pad_sequence([row for row, _ in samples], batch_first=True), torch.tensor(
            [wanted for _, wanted in samples]
        )

    return Made(Items(item), trained(Reader(), 10), {"batch_size": 16, "collate_fn": collate}, torch.get_num_threads())


def rows() -> Made:
    """Rows of tensors in memory one by one, and a network that is worth the batch."""
    data = TensorDataset(torch.randn(LENGTH, 64), torch.arange(LENGTH) % 10)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    return Made(data, trained(model, 10), {"batch_size": 1024}, torch.get_num_threads())


OWN = {"skewed texts": skewed_texts, "rows one by one": rows}


def pipeline(name: str) -> Made:
    """In this process."""
    return OWN[name]() if name in OWN else others.made(name)


def main() -> None:
    torch.manual_seed(0)
    parts = pipeline(sys.argv[1])
    loader = DataLoader(parts.dataset, shuffle=True, **parts.loader)
    for _ in range(EPOCHS):
        for batch in loader:
            parts.compute(batch)


if __name__ == "__main__":
    main()
