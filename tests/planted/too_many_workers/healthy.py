"""Trains on spectrograms; the loader was set up for a machine with many cores."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectrograms(Dataset):
    def __init__(self, num_clips: int = 960, length: int = 2048) -> None:
        self.num_clips, self.length = num_clips, length

    def __len__(self) -> int:
        return self.num_clips

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(index)
        clip = rng.normal(size=self.length).astype(np.float32)
        spectrum = np.abs(np.fft.rfft(clip.reshape(-1, 256) * np.hanning(256))).astype(np.float32)
        return torch.from_numpy(np.log1p(spectrum)), index % 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=450)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Spectrograms(), batch_size=32, num_workers=1, persistent_workers=True)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(8 * 129, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step = 0
    while step < args.steps:
        for spectra, labels in loader:
            loss = nn.functional.cross_entropy(net(spectra), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 150 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
