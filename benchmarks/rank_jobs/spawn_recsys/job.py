"""Click model for a shop (factorised + deep part), three processes, with a running global hit rate."""
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", "560"))
WORLD, BATCH = 3, 44
USERS, ITEMS = 3000, 2000


class ClickModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.deep = nn.Sequential(nn.Linear(2 * dim, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(),
                                  nn.Linear(640, 1))

    def forward(self, user, item):
        u, i = self.user(user), self.item(item)
        return (u * i).sum(1) + self.deep(torch.cat([u, i], 1)).squeeze(1)


class HitRate:
    def __init__(self):
        self.hits, self.seen = 0, 0

    def update(self, user, item, logit, label):
        records = [{"user": u, "item": i, "score": s, "label": int(y)}
                   for u, i, s, y in zip(user.tolist(), item.tolist(), logit.sigmoid().unbind(), label.tolist())]
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, records)
        for part in everyone:
            score = torch.stack([r["score"] for r in part])
            truth = torch.tensor([r["label"] for r in part])
            self.hits += int(((score > 0.5) == (truth > 0.5)).sum())
            self.seen += len(part)

    def value(self):
        return self.hits / max(1, self.seen)


def train(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.manual_seed(77)
    model = DDP(ClickModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hit_rate = HitRate()
    g = torch.Generator().manual_seed(rank)
    begin = time.time()
    for step in range(MAX_STEPS):
        user = torch.randint(0, USERS, (BATCH,), generator=g)
        item = torch.randint(0, ITEMS, (BATCH,), generator=g)
        label = ((user + item) % 3 == 0).float()
        logit = model(user, item)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hit_rate.update(user, item, logit.detach(), label)
        if rank == 0 and step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.3f} hit rate {hit_rate.value():.3f}", flush=True)
    if rank == 0:
        print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(train, args=(free,), nprocs=WORLD)
