import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

STEPS = int(os.environ.get("STEPS", 400))
VOCAB, BATCH = 800, 24


class CaptionBatches(IterableDataset):
    def __init__(self, rank, steps):
        self.rank = rank
        self.steps = steps

    def __iter__(self):
        sizes = np.random.default_rng(300 + self.rank)
        words = np.random.default_rng(900 + self.rank)
        for _ in range(self.steps):
            length = int(sizes.choice([12, 20, 32, 48, 72]))
            yield torch.from_numpy(words.integers(0, VOCAB, (BATCH, length + 1)))


class Captioner(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.LSTM(dim, dim, num_layers=2, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        h, _ = self.rnn(self.embed(tokens))
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = DDP(Captioner())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(CaptionBatches(rank, STEPS), batch_size=None)

    total = 0.0
    for step, tokens in enumerate(loader, start=1):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        logits = model(inputs)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if step % 50 == 0:
            if rank == 0:
                print(f"{step:4d} ppl {np.exp(total / 50):.1f}", flush=True)
            total = 0.0
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
