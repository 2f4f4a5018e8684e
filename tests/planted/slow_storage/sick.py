"""Trains on patches that lie one per file on a slow share."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LATENCY = 0.001  # seconds until the share answers
SIZE = 32


class Share:
    """A folder that is mounted from far away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def read(self, name: str) -> bytes:
        time.sleep(LATENCY)  # <- BRR402
        return (self.folder / name).read_bytes()  # <- BRR402


class Patches(Dataset):
    def __init__(self, share: Share, num_patches: int) -> None:
        self.share, self.num_patches = share, num_patches

    def __len__(self) -> int:
        return self.num_patches

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        raw = self.share.read(f"{index}.raw")  # <- BRR402
        patch = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(1, SIZE, SIZE) / 255
        return patch, index % 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        share = Share(Path(scratch))
        for index in range(320):
            share.write(f"{index}.raw", bytes((index * 7 + k) % 256 for k in range(SIZE * SIZE)))
        loader = DataLoader(Patches(share, 320), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
        noise = torch.randn(7000, 1, SIZE, SIZE)
        noise = noise / noise.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
        edges, shapes = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, stride=2)
        model = nn.Sequential(edges, nn.ReLU(), shapes, nn.ReLU(), nn.Flatten(), nn.Linear(7200, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        step = 0
        while step < args.steps:
            for patches, labels in loader:
                optimizer.zero_grad()
                patches = patches + 0.02 * noise[torch.randint(0, len(noise), (len(patches),))]
                loss = nn.functional.cross_entropy(model(patches), labels)
                loss.backward()
                optimizer.step()
                if step % 50 == 0:
                    print(f"step {step:4d}  loss {loss.item():.4f}")
                step += 1
                if step == args.steps:
                    break


if __name__ == "__main__":
    main()
