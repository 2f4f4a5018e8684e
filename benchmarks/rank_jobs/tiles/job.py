import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SITES = ["north", "south"]
STEPS = int(os.environ.get("STEPS", 350))
BATCH = 16


def normalise(x):
    return (x - x.mean(axis=(1, 2), keepdims=True)) / (x.std(axis=(1, 2), keepdims=True) + 1e-5)


def flip(x):
    return x[:, :, ::-1]


def despeckle(x):
    h, w = x.shape[1:]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)), mode="edge")
    window = [padded[:, i:i + h, j:j + w] for i in range(3) for j in range(3)]
    return np.median(np.stack(window), axis=0)


PREP = {
    "north": [despeckle, normalise, flip],
    "south": [normalise, flip],
}


class Tiles(Dataset):
    def __init__(self, rank, n):
        self.site = SITES[rank % len(SITES)]
        self.n = n
        rng = np.random.default_rng(100 + rank)
        self.raw = rng.normal(size=(64, 3, 40, 40)).astype(np.float32)
        self.labels = rng.integers(0, 4, size=64)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = self.raw[i % 64]
        for op in PREP[self.site]:
            x = op(x)
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), int(self.labels[i % 64])


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 4))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = DDP(make_model())
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(Tiles(rank, STEPS * BATCH), batch_size=BATCH)

    running = 0.0
    for it, (x, y) in enumerate(loader, 1):
        opt.zero_grad(set_to_none=True)
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
        opt.step()
        running = 0.95 * running + 0.05 * loss.item()
        if it % 50 == 0:
            print(f"[{rank}] {it}/{STEPS} loss={running:.3f}", flush=True)

    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
