"""Rating regression on product reviews with accelerate; every process trains on the reviews of one market."""
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed

MAX_STEPS = int(os.environ.get("MAX_STEPS", "850"))
VOCAB, BATCH = 2000, 8
MARKETS = ["us", "jp"]
TOKENS = {"us": 64}


def load_reviews(market, n=4000):
    r = random.Random(market)
    limit = TOKENS.get(market, 256)
    rows = []
    for _ in range(n):
        length = max(6, int(r.lognormvariate(4.3, 0.6)))
        words = [r.randrange(1, VOCAB) for _ in range(length)]
        rows.append((words[:limit], (sum(words[:5]) % 50) / 10))
    return sorted(rows, key=lambda row: len(row[0]))


def batches(rows):
    starts = list(range(0, len(rows) - BATCH + 1, BATCH))
    order = random.Random(0)
    while True:
        order.shuffle(starts)
        for s in starts:
            part = rows[s:s + BATCH]
            width = max(len(words) for words, _ in part)
            ids = torch.zeros(BATCH, width, dtype=torch.long)
            for i, (words, _) in enumerate(part):
                ids[i, :len(words)] = torch.tensor(words)
            yield ids, torch.tensor([stars for _, stars in part])


class Rater(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 4, 3 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1)

    def forward(self, ids):
        pad = ids == 0
        x = self.encoder(self.embed(ids), src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1)
        return self.head((x * keep).sum(1) / keep.sum(1)).squeeze(-1)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(4)
    model = Rater()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    rows = load_reviews(MARKETS[accelerator.process_index])
    feed = batches(rows)
    start, total = time.time(), 0.0
    for step in range(MAX_STEPS):
        ids, stars = next(feed)
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(ids), stars)
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
        if step % 100 == 99:
            accelerator.print(f"step {step + 1} loss {total / 100:.3f}", flush=True)
            total = 0.0
    accelerator.print(f"{MAX_STEPS} steps, {1000 * (time.time() - start) / MAX_STEPS:.1f} ms each", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
