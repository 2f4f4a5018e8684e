"""Two-tower recommender on synthetic click logs."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", 900))
USERS, ITEMS, DIM, HISTORY = 40_000, 120_000, 32, 20


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.EmbeddingBag(ITEMS, DIM, mode="sum")
        self.user_tower = nn.Sequential(nn.Linear(2 * DIM, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, DIM))
        self.item_tower = nn.Sequential(nn.Linear(DIM, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, DIM))

    def forward(self, user, history, item):
        u = self.user_tower(torch.cat([self.users(user), self.items(history) / HISTORY], 1))
        v = self.item_tower(self.items(item.unsqueeze(1)))
        return F.normalize(u, dim=1) @ F.normalize(v, dim=1).T / 0.1


def clicks(rank):
    g = torch.Generator().manual_seed(rank)
    while True:
        user = torch.randint(0, USERS, (384,), generator=g)
        item = (torch.rand(384, generator=g) ** 3 * ITEMS).long()
        history = (torch.rand(384, HISTORY, generator=g) ** 3 * ITEMS).long()
        yield user, history, item


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(TwoTower())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    times = []
    tick = time.perf_counter()
    for step, (user, history, item) in enumerate(clicks(rank), 1):
        logits = model(user, history, item)
        loss = F.cross_entropy(logits, torch.arange(len(logits)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
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
