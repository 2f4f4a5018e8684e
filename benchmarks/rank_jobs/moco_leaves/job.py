"""Momentum contrast on leaf scans: a query encoder against a queue of keys."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", "330"))
DIM, QUEUE, BATCH = 128, 65536, 8


def encoder():
    def unit(i, o):
        return [nn.Conv2d(i, o, 3, stride=2, padding=1), nn.GroupNorm(4, o), nn.ReLU()]
    return nn.Sequential(*unit(3, 24), *unit(24, 48), *unit(48, 96), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(96, DIM))


@torch.no_grad()
def gather_keys(keys):
    out = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
    dist.all_gather(out, keys)
    return torch.cat(out)


class MoCo(nn.Module):
    def __init__(self, m=0.99, temperature=0.1):
        super().__init__()
        self.m, self.temperature = m, temperature
        self.query, self.key = encoder(), encoder()
        for p, q in zip(self.key.parameters(), self.query.parameters()):
            p.data.copy_(q.data)
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, DIM), dim=1))
        self.cursor = 0

    @torch.no_grad()
    def momentum(self):
        for p, q in zip(self.key.parameters(), self.query.parameters()):
            p.mul_(self.m).add_(q, alpha=1 - self.m)

    @torch.no_grad()
    def push(self, keys):
        keys = gather_keys(keys)
        self.queue[self.cursor:self.cursor + len(keys)] = keys
        self.cursor = (self.cursor + len(keys)) % QUEUE

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            self.momentum()
            k = F.normalize(self.key(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.T
        logits = torch.cat([positive, negative], 1) / self.temperature
        return logits, k


def views(g):
    base = torch.rand(BATCH, 3, 48, 48, generator=g)
    flip = base.flip(-1) if torch.rand(1, generator=g) < 0.5 else base
    return base + 0.1 * torch.randn(base.shape, generator=g), flip * 0.9


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(30)
    model = DDP(MoCo())
    optimizer = torch.optim.SGD(model.module.query.parameters(), lr=0.03, momentum=0.9)
    g = torch.Generator().manual_seed(rank)
    target = torch.zeros(BATCH, dtype=torch.long)
    begin = time.time()
    for step in range(MAX_STEPS):
        a, b = views(g)
        logits, keys = model(a, b)
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.module.push(keys)
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if rank == 0:
        print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
