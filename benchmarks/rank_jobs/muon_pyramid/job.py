"""Pyramid token mixer on image patches; matrices are trained with Muon, the work split over the ranks."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", "450"))


def orthogonalise(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


class Muon:
    def __init__(self, params, lr=0.02, momentum=0.95):
        self.params = list(params)
        self.lr, self.momentum = lr, momentum
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.parts = self.assign()
        self.state = {p: torch.zeros_like(p) for p in self.parts[self.rank]}

    def assign(self):
        return [self.params[r::self.world] for r in range(self.world)]

    @torch.no_grad()
    def step(self):
        for p in self.parts[self.rank]:
            buf = self.state[p]
            buf.mul_(self.momentum).add_(p.grad)
            update = orthogonalise(p.grad.add(buf, alpha=self.momentum))
            p.add_(update, alpha=-self.lr * max(1, p.size(0) / p.size(1)) ** 0.5)
        for owner, part in enumerate(self.parts):
            flat = torch.cat([p.flatten() for p in part])
            dist.broadcast(flat, owner)
            if owner != self.rank:
                for p, new in zip(part, flat.split([p.numel() for p in part])):
                    p.copy_(new.view_as(p))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Pyramid(nn.Module):
    def __init__(self, patch=48, d1=48, d2=76, classes=20):
        super().__init__()
        self.embed = nn.Linear(patch, d1)
        self.stage1 = nn.Sequential(*[Block(d1) for _ in range(2)])
        self.merge = nn.Linear(4 * d1, d2)
        self.stage2 = nn.Sequential(*[Block(d2) for _ in range(2)])
        self.head = nn.Linear(d2, classes)

    def forward(self, x):
        x = self.stage1(self.embed(x))
        b, n, d = x.shape
        x = self.stage2(self.merge(x.reshape(b, n // 4, 4 * d)))
        return self.head(x.mean(1))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Pyramid())
    net = model.module
    matrices = [p for s in (net.stage1, net.stage2) for p in s.parameters() if p.ndim == 2]
    ids = {id(p) for p in matrices}
    muon = Muon(matrices)
    adam = torch.optim.AdamW([p for p in net.parameters() if id(p) not in ids], lr=1e-3)
    g = torch.Generator().manual_seed(100 + rank)
    protos = torch.randn(20, 1, 48, generator=torch.Generator().manual_seed(5))
    start = time.time()
    for step in range(MAX_STEPS):
        y = torch.randint(0, 20, (12,), generator=g)
        x = protos[y] + torch.randn(12, 64, 48, generator=g)
        loss = F.cross_entropy(model(x), y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        muon.step()
        adam.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if rank == 0:
        print(f"{MAX_STEPS} steps, {1000 * (time.time() - start) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
