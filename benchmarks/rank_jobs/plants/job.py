import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS = int(os.environ.get("STEPS", 360))
EVAL_EVERY = 50


class Leaves(Dataset):
    def __init__(self, n, seed, train):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 3, 32, 32, generator=g)
        self.y = torch.randint(0, 6, (n,), generator=g)
        self.x[:, 0] += 0.2 * self.y[:, None, None]
        self.train = train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.train:
            if torch.rand(()) < 0.5:
                x = x.flip(-1)
            x = torch.roll(x, int(torch.randint(-3, 4, ())), dims=1)
        return x, self.y[i]


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


def evaluate(model, loader):
    model.eval()
    stats = torch.zeros(2)
    with torch.no_grad():
        for x, y in loader:
            stats[0] += (model(x).argmax(1) == y).sum()
            stats[1] += len(y)
    dist.all_reduce(stats)
    model.train()
    return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(conv(3, 24), conv(24, 48), conv(48, 64), nn.Flatten(), nn.Linear(64 * 16, 6)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    train, valid = Leaves(4800, 1, True), Leaves(768, 2, False)
    sampler = DistributedSampler(train, shuffle=True, seed=5)
    loader = DataLoader(train, batch_size=24, sampler=sampler, num_workers=1, persistent_workers=True, drop_last=True)
    valid_loader = DataLoader(valid, batch_size=64, sampler=DistributedSampler(valid, shuffle=False))

    step, epoch = 0, 0
    while step < STEPS:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % EVAL_EVERY == 0:
                acc = evaluate(model.module, valid_loader)
                if rank == 0:
                    print(f"step {step} loss {loss.item():.3f} valid {acc:.3f}", flush=True)
            if step >= STEPS:
                break
        epoch += 1
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
