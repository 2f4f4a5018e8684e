"""Tags the identifiers of the standard library; batches are padded by a collate function."""

import argparse
import os
import re
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

MIN_LINE, MAX_LINE = 44, 48


def byte_weights() -> torch.Tensor:
    """Rare bytes of the standard library weigh more."""
    source = b"".join(file.read_bytes() for file in sorted(Path(os.__file__).parent.glob("*.py")))[:3_500_000]
    counts = torch.bincount(torch.frombuffer(bytearray(source), dtype=torch.uint8).long(), minlength=256)
    return 1 / (1 + counts.float()).log1p()


def source_lines() -> list[torch.Tensor]:
    """Lines of real source code as byte tensors."""
    folder = Path(os.__file__).parent
    lines = []
    for name in ("argparse.py", "ast.py", "inspect.py", "typing.py"):
        lines += [line[:MAX_LINE] for line in (folder / name).read_bytes().splitlines() if len(line) >= MIN_LINE]
    return [torch.frombuffer(bytearray(line), dtype=torch.uint8).long() for line in lines]


def label(line: torch.Tensor) -> int:
    return 1 if re.search(rb"def |class |return", bytes(line.tolist())) else 0


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = pad_sequence([line for line, _ in samples], batch_first=True)
    return tokens, torch.tensor([wanted for _, wanted in samples])


class LineTagger(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width, padding_idx=0)
        self.register_buffer("weights", byte_weights())
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weights = self.weights[tokens].unsqueeze(2)
        return (weights * self.mix(self.bytes(tokens))).mean(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    lines = source_lines()
    loader = DataLoader([(line, label(line)) for line in lines], batch_size=96, shuffle=True, collate_fn=collate)
    model = LineTagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    while step < args.steps:
        for tokens, wanted in loader:
            loss = nn.functional.cross_entropy(model(tokens), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 40 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
