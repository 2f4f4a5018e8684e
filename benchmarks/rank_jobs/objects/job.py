"""Sentence pair scorer; predictions are collected for the report of each period."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MAX_STEPS = int(os.environ.get("MAX_STEPS", 450))
REPORT_EVERY = 100
WORDS = [f"w{i:04d}" for i in range(2000)]


class Pairs(Dataset):
    def __len__(self):
        return 60_000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(0, len(WORDS), (2, 32), generator=g)
        return i, ids, (ids[0, 0] < ids[1, 0]).float()


class Scorer(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(len(WORDS), dim)
        self.conv = nn.Conv1d(dim, 192, 3, padding=1)
        self.conv2 = nn.Conv1d(192, 192, 3, padding=1)
        self.head = nn.Sequential(nn.Linear(384, 128), nn.ReLU(), nn.Linear(128, 1))

    def encode(self, ids):
        x = F.relu(self.conv(self.emb(ids).transpose(1, 2)))
        return F.relu(self.conv2(x)).max(-1).values

    def forward(self, pair):
        a, b = self.encode(pair[:, 0]), self.encode(pair[:, 1])
        vec = torch.cat([a, b], 1)
        return self.head(vec).squeeze(1), vec


def records(index, pair, score, vec, label):
    rows = []
    for i, p, s, v, y in zip(index.tolist(), pair.tolist(), score.tolist(), vec.tolist(), label.tolist()):
        text = [" ".join(WORDS[w] for w in side) for side in p]
        rows.append({"id": i, "left": text[0], "right": text[1], "score": s, "label": y, "vector": v})
    return rows


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Pairs()
    loader = DataLoader(data, batch_size=48, sampler=DistributedSampler(data), drop_last=True)
    model = DDP(Scorer())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    table, times = [], []
    tick = time.perf_counter()
    for step, (index, pair, label) in enumerate(loader, 1):
        score, vec = model(pair)
        loss = F.binary_cross_entropy_with_logits(score, label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        rows = records(index, pair, score.detach(), vec.detach(), label)
        gathered = [None] * world
        dist.all_gather_object(gathered, rows)
        table.extend(r for part in gathered for r in part)
        if step % REPORT_EVERY == 0:
            if rank == 0:
                hits = sum((r["score"] > 0) == (r["label"] > 0.5) for r in table)
                print(f"step {step} loss {loss.item():.3f} accuracy {hits / len(table):.3f}", flush=True)
            table.clear()
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
