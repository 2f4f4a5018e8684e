"""Document classifier (bi-GRU) with batches of similar length."""
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

MAX_STEPS = int(os.environ.get("MAX_STEPS", 650))
VOCAB = 3000


class Documents(Dataset):
    def __init__(self, n=8000):
        rng = random.Random(7)
        self.docs = []
        for _ in range(n):
            length = max(6, min(160, int(rng.lognormvariate(3.7, 0.7))))
            label = rng.randrange(5)
            self.docs.append(([rng.randrange(1 + label, VOCAB) for _ in range(length)], label))

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i]


class BucketBatches(Sampler):
    """Batches of documents of about the same length, dealt out to the ranks."""

    def __init__(self, data, size, rank, world):
        order = sorted(range(len(data)), key=lambda i: len(data.docs[i][0]))
        per_rank = len(order) // world
        mine = order[rank * per_rank:(rank + 1) * per_rank]
        self.batches = [mine[i:i + size] for i in range(0, per_rank - size + 1, size)]

    def __iter__(self):
        batches = list(self.batches)
        random.Random(13).shuffle(batches)
        return iter(batches)

    def __len__(self):
        return len(self.batches)


def collate(rows):
    tokens = [torch.tensor(t) for t, _ in rows]
    return pad_sequence(tokens, batch_first=True), torch.tensor([y for _, y in rows])


class Classifier(nn.Module):
    def __init__(self, dim=64, hidden=96):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, 5)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.out(h.max(1).values)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Documents()
    sampler = BucketBatches(data, 16, rank, world)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    model = DDP(Classifier())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    times, step = [], 0
    tick = time.perf_counter()
    while step < MAX_STEPS:
        for tokens, labels in loader:
            logits = model(tokens)
            loss = F.cross_entropy(logits, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if rank == 0 and step % 100 == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
            times.append(time.perf_counter() - tick)
            tick = time.perf_counter()
            if step == 20:
                cpu0 = time.process_time()
            if step >= MAX_STEPS:
                break
    spent = time.process_time() - cpu0
    ms = sorted(1e3 * t for t in times[20:])
    print(f"rank {rank}: {len(times)} steps, mean {sum(ms) / len(ms):.2f} ms, median {ms[len(ms) // 2]:.2f} ms, "
          f"cpu {1e3 * spent / len(ms):.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
