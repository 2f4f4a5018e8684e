"""Trains on spectra that lie one per file."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BINS = 512


class Spectra(Dataset):
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self.files[index]))  # <- BRR401


def record(folder: Path, num_files: int) -> None:
    drawn = np.random.default_rng(0)
    for number in range(num_files):
        np.save(folder / f"{number:05d}.npy", drawn.standard_normal(BINS, dtype=np.float32))


def train(num_steps: int) -> None:
    model = nn.Sequential(nn.Linear(BINS, 128), nn.ReLU(), nn.Linear(128, BINS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as scratch:
        record(Path(scratch), 3000)
        loader = DataLoader(Spectra(Path(scratch)), batch_size=64, shuffle=True)
        step = 0
        while step < num_steps:
            for spectra in loader:
                loss = nn.functional.mse_loss(model(spectra), spectra)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 50 == 0:
                    print(f"step {step:4d}  loss {loss.item():.4f}")
                step += 1
                if step == num_steps:
                    break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
