"""Character language model (wide window MLP) with gradient accumulation, started by spawn."""
import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2
MAX_STEPS = int(os.environ.get("MAX_STEPS", 640))
ACCUMULATE = 8
VOCAB, LENGTH, BATCH = 96, 24, 32


class CharLM(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(LENGTH * dim, 2048), nn.ReLU(),
            nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, VOCAB),
        )

    def forward(self, x):
        return self.net(self.emb(x))


def windows(rank):
    g = torch.Generator().manual_seed(0)
    text = torch.randint(0, VOCAB, (400_000,), generator=g)
    pick = torch.Generator().manual_seed(1 + rank)
    while True:
        start = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=pick)
        rows = torch.stack([text[s:s + LENGTH + 1] for s in start.tolist()])
        yield rows[:, :-1], rows[:, -1]


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DDP(CharLM())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    times = []
    tick = time.perf_counter()
    for step, (x, y) in enumerate(windows(rank), 1):
        logits = model(x)
        loss = F.cross_entropy(logits, y) / ACCUMULATE
        loss.backward()
        if step % ACCUMULATE == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        if rank == 0 and step % 80 == 0:
            print(f"micro step {step} loss {loss.item() * ACCUMULATE:.3f}", flush=True)
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
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 29611
    mp.spawn(worker, args=(port,), nprocs=WORLD)
