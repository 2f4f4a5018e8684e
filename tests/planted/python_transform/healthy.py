"""Trains a sound classifier; each clip gets gain, noise gate and clipping on its way in."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIP_LENGTH = 4096


class Clips(Dataset):
    def __init__(self, num_clips: int) -> None:
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 4, num_clips)
        time = np.arange(CLIP_LENGTH, dtype=np.float32)
        tones = np.sin(time * (self.labels[:, None] + 1) / 20)
        self.clips = tones + 0.3 * rng.normal(size=(num_clips, CLIP_LENGTH))

    def __len__(self) -> int:
        return len(self.clips)

    def augment(self, clip: np.ndarray) -> torch.Tensor:
        louder = np.float32(1.5) * clip.astype(np.float32)
        louder[np.abs(louder) <= 0.05] = 0
        return torch.from_numpy(louder.clip(-1, 1))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.augment(self.clips[index]), int(self.labels[index])


def forever(loader: DataLoader):
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Clips(840), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        nn.Unflatten(1, (1, CLIP_LENGTH)),
        nn.Conv1d(1, 32, 16, stride=4),
        nn.ReLU(),
        nn.Conv1d(32, 64, 8, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (clips, labels) in zip(range(args.steps), forever(loader)):
        loss = nn.functional.cross_entropy(model(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
