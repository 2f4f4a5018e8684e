"""Multi-label tagging of feature vectors with per-label F1 scores."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MAX_STEPS = int(os.environ.get("MAX_STEPS", 900))
LABELS = [f"tag_{i:02d}" for i in range(32)]


class LabelMetrics:
    def __init__(self, names):
        self.names = names
        self.tp = torch.zeros(len(names))
        self.fp = torch.zeros(len(names))
        self.fn = torch.zeros(len(names))

    @torch.no_grad()
    def update(self, logits, target):
        pred = (logits > 0).float()
        for i in range(len(self.names)):
            tp = (pred[:, i] * target[:, i]).sum()
            fp = (pred[:, i] * (1 - target[:, i])).sum()
            fn = ((1 - pred[:, i]) * target[:, i]).sum()
            for total, value in ((self.tp, tp), (self.fp, fp), (self.fn, fn)):
                dist.all_reduce(value)
                total[i] += value.item()

    def macro_f1(self):
        return (2 * self.tp / (2 * self.tp + self.fp + self.fn).clamp(min=1)).mean().item()


def build():
    return nn.Sequential(
        nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(),
        nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU(), nn.Dropout(0.1),
        nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU(), nn.Dropout(0.1),
        nn.Linear(512, len(LABELS)),
    )


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(1)
    x = torch.randn(16512, 256, generator=g)
    y = (x @ torch.randn(256, len(LABELS), generator=g) > 12).float()
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=256, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = DDP(build())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    metrics = LabelMetrics(LABELS)

    times, step, epoch = [], 0, 0
    tick = time.perf_counter()
    while step < MAX_STEPS:
        sampler.set_epoch(epoch)
        epoch += 1
        for xb, yb in loader:
            logits = model(xb)
            loss = F.binary_cross_entropy_with_logits(logits, yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            metrics.update(logits.detach(), yb)
            step += 1
            if step % 50 == 0:
                f1 = metrics.macro_f1()
                if rank == 0:
                    print(f"step {step} loss {loss.item():.4f} macro F1 {f1:.3f}", flush=True)
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
