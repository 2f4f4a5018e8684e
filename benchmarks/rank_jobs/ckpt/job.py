"""Reranker on top of a frozen table of item embeddings."""
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_STEPS = int(os.environ.get("MAX_STEPS", 800))
SAVE_EVERY = 25
ITEMS, DIM = 250_000, 96


class Reranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM)
        self.items.weight.requires_grad_(False)
        self.mix = nn.TransformerEncoderLayer(DIM, 4, 192, dropout=0.0, batch_first=True)
        self.score = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, candidates):
        return self.score(self.mix(self.items(candidates))).squeeze(-1)


def batches(rank):
    g = torch.Generator().manual_seed(rank)
    while True:
        candidates = torch.randint(0, ITEMS, (16, 40), generator=g)
        clicked = torch.randint(0, 40, (16,), generator=g)
        yield candidates, clicked


def write(state, path):
    with open(path + ".tmp", "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def save(model, opt, step):
    state = {"model": model.state_dict(), "opt": opt.state_dict(), "step": step}
    write(state, os.path.join(HERE, "last.pt"))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Reranker()
    ddp = DDP(model)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    times = []
    tick = time.perf_counter()
    for step, (candidates, clicked) in enumerate(batches(rank), 1):
        loss = F.cross_entropy(ddp(candidates), clicked)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % SAVE_EVERY == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            save(model, opt, step)
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
