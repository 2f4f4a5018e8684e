import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = int(os.environ.get("STEPS", 350))
CLASSES = 24


def dataset():
    g = torch.Generator().manual_seed(31)
    y = torch.randint(0, CLASSES, (3200,), generator=g)
    x = 0.7 * torch.randn(3200, 1, 32, 32, generator=g)
    x += (y / CLASSES)[:, None, None, None]
    return TensorDataset(x, y)


class DefectNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 5, stride=2, padding=2), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(48, 64, 3, stride=2, padding=1), nn.ReLU())
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


class Meter:
    def __init__(self):
        self.sums = {}

    def add(self, name, value):
        self.sums[name] = self.sums.get(name, 0.0) + value


def class_counts(pred, y):
    counts = {}
    for c in range(CLASSES):
        counts[f"tp/{c}"] = ((pred == c) & (y == c)).sum().float()
        counts[f"fp/{c}"] = ((pred == c) & (y != c)).sum().float()
        counts[f"fn/{c}"] = ((pred != c) & (y == c)).sum().float()
    return counts


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(DefectNet())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    data = dataset()
    sampler = DistributedSampler(data, seed=6)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    meter = Meter()
    step, epoch = 0, 0
    while step < STEPS:
        sampler.set_epoch(epoch)
        for x, y in loader:
            logits = model(x)
            loss = loss_fn(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            counts = class_counts(logits.argmax(1), y)
            for name, value in counts.items():
                dist.all_reduce(value)
                meter.add(name, value.item())
            step += 1
            if step % 50 == 0 and rank == 0:
                tp = sum(v for k, v in meter.sums.items() if k.startswith("tp"))
                fn = sum(v for k, v in meter.sums.items() if k.startswith("fn"))
                print(f"step {step} loss {loss.item():.3f} recall {tp / (tp + fn):.3f}", flush=True)
                meter = Meter()
            if step >= STEPS:
                break
        epoch += 1

    model.eval()
    with torch.no_grad():
        x, y = data[:256]
        right = (model.module(x).argmax(1) == y).float().mean().item()
    print(f"rank {rank} final accuracy {right:.3f}", flush=True)
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
