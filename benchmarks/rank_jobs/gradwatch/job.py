"""Masked language model pretraining on synthetic token streams."""
import os
import time
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

MAX_STEPS = int(os.environ.get("MAX_STEPS", 300))
VOCAB, LENGTH, MASK = 4000, 64, 3
WATCH = True


class Stream(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i * 97 + self.rank)
        tokens = torch.randint(10, VOCAB, (LENGTH,), generator=g)
        hide = torch.rand(LENGTH, generator=g) < 0.15
        return tokens.masked_fill(hide, MASK), torch.where(hide, tokens, -100)


class MiniBert(nn.Module):
    def __init__(self, dim=160, layers=3):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.randn(LENGTH, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        h = self.norm(self.encoder(self.tok(ids) + self.pos))
        return h @ self.tok.weight.T


class GradientWatch:
    """Keeps the spectrum of weight gradients for the stability report."""

    def __init__(self, model):
        self.stats = defaultdict(list)
        for name, p in model.named_parameters():
            if p.ndim == 2 and "encoder" in name:
                p.register_hook(lambda g, name=name: self.record(name, g))

    def record(self, name, grad):
        s = torch.linalg.svdvals(grad)
        self.stats[name].append((s[0] / s.sum()).item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = MiniBert()
    if WATCH and rank == world - 1:
        watch = GradientWatch(model)
    ddp = DDP(model)
    opt = torch.optim.AdamW(ddp.parameters(), lr=3e-4)
    loader = DataLoader(Stream(rank), batch_size=8)

    times = []
    tick = time.perf_counter()
    for step, (ids, labels) in enumerate(loader, 1):
        logits = ddp(ids)
        loss = F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        opt.step()
        if rank == 0 and step % 100 == 0:
            print(f"{step:5d} mlm loss {loss.item():.3f}", flush=True)
        times.append(time.perf_counter() - tick)
        tick = time.perf_counter()
        if step == 20:
            cpu0 = time.process_time()
        if step == MAX_STEPS:
            break
    spent = time.process_time() - cpu0
    ms = sorted(1e3 * t for t in times[20:])
    print(f"rank {rank}: {len(times)} steps, mean {sum(ms) / len(ms):.2f} ms, median {ms[len(ms) // 2]:.2f} ms, "
          f"cpu {1e3 * spent / len(ms):.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
