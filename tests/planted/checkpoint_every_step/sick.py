"""Trains with gradient accumulation and writes checkpoints to a scratch folder."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn


def make_model(width: int = 768) -> nn.Module:
    inputs, first, second = nn.Linear(128, width), nn.Linear(width, width), nn.Linear(width, width)
    return nn.Sequential(inputs, nn.ReLU(), first, nn.ReLU(), second, nn.ReLU(), nn.Linear(width, 4))


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, folder / "last.pt")  # <- BRR304


def train(num_steps: int, folder: Path, num_micro_batches: int = 2) -> None:
    records = 5 * torch.randn(56_000, 128) + 2
    records = (records - records.mean(dim=0)) / records.std(dim=0)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.CrossEntropyLoss()
    for step in range(num_steps):
        for _ in range(num_micro_batches):
            x = records[torch.randint(0, len(records), (64,))]
            loss = criterion(model(x), x[:, :4].argmax(dim=1)) / num_micro_batches
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        save(folder, model, optimizer, step)  # <- BRR304
        if step % 50 == 0:
            print(f"step {step:4d}  loss {num_micro_batches * loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        train(args.steps, Path(scratch))
