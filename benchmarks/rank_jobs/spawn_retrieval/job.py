"""Two-tower passage retrieval, started with torch.multiprocessing.spawn."""
import gc
import os
import random
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", "360"))
WORLD = 2
VOCAB = 8000


class Tower(nn.Module):
    def __init__(self, dim=192):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 96)

    def forward(self, ids):
        return F.normalize(self.out(self.rnn(self.embed(ids))[0].mean(1)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.passage = Tower(), Tower()

    def forward(self, q, p):
        return self.query(q) @ self.passage(p).T / 0.05


class KeywordIndex:
    """Postings of the passage collection, for spot checks in the main process."""

    def __init__(self, passages=9000, words=60):
        r = random.Random(1)
        self.postings = {}
        for pid in range(passages):
            for pos in range(words):
                self.postings.setdefault(r.randrange(VOCAB), []).append([pid, pos])

    def lookup(self, word, k=5):
        return [pid for pid, _ in self.postings.get(word, [])[:k]]


def train(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.manual_seed(8)
    model = DDP(TwoTower())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    index = KeywordIndex() if rank == 0 else None
    dist.barrier()
    g = torch.Generator().manual_seed(rank)
    target = torch.arange(12)
    begin = time.time()
    for step in range(MAX_STEPS):
        p = torch.randint(0, VOCAB, (12, 20), generator=g)
        q = p[:, :6]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(q, p), target)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            gc.collect()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f} sample {index.lookup(int(q[0, 0]))}", flush=True)
    if rank == 0:
        print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(train, args=(free,), nprocs=WORLD)
