"""Many short epochs over a small set of curves, with two loader workers."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Curves(Dataset):
    """Noisy sines; the task is to tell their frequency."""

    def __init__(self, num_curves: int = 512, length: int = 1024) -> None:
        self.frequencies = np.random.default_rng(0).uniform(1, 9, num_curves).astype(np.float32)
        self.time = np.linspace(0, 1, length, dtype=np.float32)
        self.noise = np.random.default_rng(1).normal(0, 0.1, (3500, length)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.frequencies)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        frequency = self.frequencies[index : index + 1]
        noise = self.noise[np.random.randint(len(self.noise))]
        return np.sin(2 * np.pi * frequency * self.time) + noise, frequency / 10


class Trainer:
    def __init__(self, max_steps: int) -> None:
        self.loader = DataLoader(Curves(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
        self.net = nn.Sequential(nn.Linear(1024, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02)
        self.max_steps = max_steps
        self.num_steps = 0

    def run_epoch(self) -> float:
        total = 0.0
        for curves, wanted in self.loader:
            if self.num_steps == self.max_steps:
                break
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.net(curves), wanted)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            self.num_steps += 1
        return total / len(self.loader)

    def fit(self) -> None:
        epoch = 0
        while self.num_steps < self.max_steps:
            loss = self.run_epoch()
            if epoch % 5 == 0:
                print(f"epoch {epoch:3d}  loss {loss:.5f}")
            epoch += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    torch.manual_seed(0)
    Trainer(parser.parse_args().steps).fit()
