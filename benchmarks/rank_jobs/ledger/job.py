import contextlib
import logging
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = int(os.environ.get("STEPS", 400))
ACCUM, VOCAB, SEQ = 2, 1200, 32


class LM(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(SEQ, d)
        layer = nn.TransformerEncoderLayer(d, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, VOCAB)
        self.register_buffer("mask", torch.full((SEQ, SEQ), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        return self.head(self.layers(x, mask=self.mask))


def batches(rank):
    g = torch.Generator().manual_seed(70 + rank)
    while True:
        first = torch.randint(0, VOCAB, (12, 1), generator=g)
        jump = torch.randint(1, 9, (12, 1), generator=g)
        ids = (first + jump * torch.arange(SEQ + 1)) % VOCAB
        yield ids[:, :-1], ids[:, 1:]


def make_logger(rank):
    path = os.path.join(tempfile.mkdtemp(prefix="ledger_"), f"rank{rank}.log")
    log = logging.getLogger("ledger")
    log.addHandler(logging.FileHandler(path))
    log.setLevel(logging.INFO)
    return log


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log = make_logger(rank)
    torch.manual_seed(12)
    model = DDP(LM())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS // ACCUM)
    stream = batches(rank)

    for step in range(1, STEPS + 1):
        ids, target = next(stream)
        last = step % ACCUM == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten())
            (loss / ACCUM).backward()
        if last:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            log.info("step %d loss %.4f norm %.3f lr %.2e", step, loss.item(), norm.item(), sched.get_last_lr()[0])
        if step % 80 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
