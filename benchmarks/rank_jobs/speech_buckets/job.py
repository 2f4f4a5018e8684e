"""CTC speech recogniser with batches drawn from length buckets; the body runs on a (simulated) NPU."""
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

MAX_STEPS = int(os.environ.get("MAX_STEPS", "500"))
MELS, SYMBOLS, BATCH = 40, 29, 6


class Clips(Dataset):
    def __init__(self, n=3000):
        r = random.Random(9)
        self.frames = []
        for _ in range(n):
            if r.random() < 0.78:
                self.frames.append(r.randint(60, 140))
            else:
                self.frames.append(r.randint(1210, 1490))

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        mel = torch.randn(MELS, self.frames[i], generator=g)
        text = torch.randint(1, SYMBOLS, (6,), generator=g)
        return mel, text


class LengthBuckets:
    """Batches of clips of like length; the ranks share the clips of a bucket."""

    def __init__(self, frames, rank, world, width=150, seed=0):
        self.seed, self.rank, self.epoch = seed, rank, 0
        buckets = {}
        for i, n in enumerate(frames):
            buckets.setdefault(n // width, []).append(i)
        self.batches = []
        for key in sorted(buckets):
            members = buckets[key]
            members = members[: len(members) // (BATCH * world) * BATCH * world]
            mine = members[rank::world]
            self.batches += [mine[i:i + BATCH] for i in range(0, len(mine), BATCH)]

    def __iter__(self):
        order = list(range(len(self.batches)))
        random.Random(self.seed + 1000 * self.epoch + self.rank).shuffle(order)
        self.epoch += 1
        for b in order:
            yield self.batches[b]

    def __len__(self):
        return len(self.batches)


def collate(items):
    width = max(mel.shape[1] for mel, _ in items)
    mels = torch.stack([F.pad(mel, (0, width - mel.shape[1])) for mel, _ in items])
    lengths = torch.tensor([(mel.shape[1] + 3) // 4 for mel, _ in items])
    return mels, torch.stack([text for _, text in items]), lengths


class Npu(torch.autograd.Function):
    """Device time of the body, which grows with the number of frames."""

    PER_FRAME = 1e-4

    @staticmethod
    def forward(ctx, x):
        ctx.seconds = Npu.PER_FRAME * x.shape[-1]
        time.sleep(ctx.seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(1.5 * ctx.seconds)
        return grad


class Recogniser(nn.Module):
    def __init__(self, dim=40):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(MELS, dim, 5, stride=2, padding=2), nn.ReLU(),
                                   nn.Conv1d(dim, dim, 5, stride=2, padding=2), nn.ReLU())
        self.body = nn.Sequential(*[m for _ in range(3) for m in
                                    (nn.Conv1d(dim, dim, 3, padding=1), nn.ReLU())])
        self.out = nn.Linear(dim, SYMBOLS)

    def forward(self, mels):
        x = Npu.apply(self.body(self.front(mels)))
        return self.out(x.transpose(1, 2)).log_softmax(-1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    data = Clips()
    loader = DataLoader(data, batch_sampler=LengthBuckets(data.frames, rank, world), collate_fn=collate)
    model = DDP(Recogniser())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    step, begin = 0, time.time()
    while step < MAX_STEPS:
        for mels, text, lengths in loader:
            logp = model(mels)
            loss = F.ctc_loss(logp.transpose(0, 1), text, lengths,
                              torch.full((len(text),), text.shape[1]), zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 100 == 0:
                print(f"step {step} ctc {loss.item():.3f}", flush=True)
            step += 1
            if step == MAX_STEPS:
                break
    if rank == 0:
        print(f"{step} steps, {1000 * (time.time() - begin) / step:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
