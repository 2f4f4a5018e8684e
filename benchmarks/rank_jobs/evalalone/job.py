"""Small residual CNN on 32x32 images, data parallel."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MAX_STEPS = int(os.environ.get("MAX_STEPS", 700))
EVAL_EVERY = 20


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.n1 = nn.GroupNorm(4, cout)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.n2 = nn.GroupNorm(4, cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.n1(self.c1(x)))
        y = self.n2(self.c2(y))
        return F.relu(y + self.skip(x))


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.body = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        x = self.body(F.relu(self.stem(x)))
        return self.head(x.mean((2, 3)))


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=g)
    x = torch.randn(n, 3, 32, 32, generator=g) + y.view(-1, 1, 1, 1) * 0.1
    return TensorDataset(x, y)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    correct = seen = 0
    for x, y in loader:
        pred = net(x).argmax(1)
        correct += (pred == y).sum().item()
        seen += len(y)
    net.train()
    return correct, seen


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    train_set, val_set = make_images(12800, 1), make_images(6144, 2)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=64, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=128)

    net = DDP(Net())
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    times, step, epoch = [], 0, 0
    tick = time.perf_counter()
    while step < MAX_STEPS:
        sampler.set_epoch(epoch)
        epoch += 1
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % EVAL_EVERY == 0 and rank == 0:
                correct, seen = evaluate(net.module, val_loader)
                print(f"step {step} loss {loss.item():.3f} val acc {correct / seen:.3f}", flush=True)
            times.append(time.perf_counter() - tick)
            tick = time.perf_counter()
            if step == 20:
                cpu0 = time.process_time()
            if step >= MAX_STEPS:
                break
    spent = time.process_time() - cpu0
    ms = sorted(1e3 * t for t in times[20:])
    print(f"rank {rank}: {len(times)} steps, mean {sum(ms) / len(ms):.2f} ms, median {ms[len(ms) // 2]:.2f} ms, "
          f"cpu {1e3 * spent / len(ms):.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
