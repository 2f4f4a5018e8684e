import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

STEPS = int(os.environ.get("STEPS", 400))
VOCAB, TAGS, DIM = 5000, 12, 128


def read_corpus(n=4800):
    g = torch.Generator().manual_seed(7)
    docs = []
    for _ in range(n):
        length = int(torch.randint(14, 90, (1,), generator=g))
        words = torch.randint(0, VOCAB, (length,), generator=g)
        docs.append((words, words % TAGS))
    docs.sort(key=lambda d: len(d[0]))
    return docs


class Corpus(Dataset):
    def __init__(self, rank, world):
        docs = read_corpus()
        per = len(docs) // world
        self.docs = docs[rank * per:(rank + 1) * per]

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i]


def collate(batch):
    words = torch.cat([w for w, _ in batch])
    tags = torch.cat([t for _, t in batch])
    return words, tags


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 3 * DIM)
        self.down = nn.Linear(3 * DIM, DIM)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(DIM, TAGS)

    def forward(self, words):
        return self.head(self.blocks(self.embed(words)))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Corpus(rank, world), batch_size=32, shuffle=True, collate_fn=collate, drop_last=True,
                        generator=torch.Generator().manual_seed(rank))

    step, epoch = 0, 0
    while step < STEPS:
        for words, tags in loader:
            logits = model(words)
            loss = F.cross_entropy(logits, tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0 and rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if step >= STEPS:
                break
        epoch += 1
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
