"""Sequence transduction (toy transliteration) with a live quality monitor."""
import os
import queue
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", 500))
SYMBOLS, LENGTH, BATCH = 120, 48, 32


def edit_distance(a, b):
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(row[j - 1] + 1, previous[j] + 1, previous[j - 1] + (x != y)))
        previous = row
    return previous[-1]


class QualityMonitor:
    """Character error rate of the training predictions, off the training loop."""

    def __init__(self):
        self.inbox = queue.Queue()
        self.errors = self.symbols = 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def submit(self, logits, target):
        self.inbox.put((logits.argmax(-1).tolist(), target.tolist()))

    def work(self):
        while True:
            item = self.inbox.get()
            if item is None:
                return
            for guess, truth in zip(*item):
                self.errors += edit_distance(guess, truth)
                self.symbols += len(truth)

    def close(self):
        self.inbox.put(None)
        self.thread.join()

    def rate(self):
        return self.errors / max(1, self.symbols)


class Transducer(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(SYMBOLS, dim)
        self.pos = nn.Parameter(torch.randn(LENGTH, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, SYMBOLS)

    def forward(self, x):
        return self.out(self.enc(self.emb(x) + self.pos))


def pairs(rank):
    g = torch.Generator().manual_seed(100 + rank)
    table = torch.randperm(SYMBOLS, generator=torch.Generator().manual_seed(5))
    while True:
        x = torch.randint(0, SYMBOLS, (BATCH, LENGTH), generator=g)
        yield x, table[x]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Transducer())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = QualityMonitor() if rank == 0 else None

    times = []
    tick = time.perf_counter()
    for step, (x, y) in enumerate(pairs(rank), 1):
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if monitor:
            monitor.submit(logits.detach(), y)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} cer {monitor.rate():.3f}", flush=True)
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
    if monitor:
        monitor.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
