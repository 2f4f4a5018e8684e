"""Forecasting on windows of sensor data kept in shards, one shard per rank."""
import io
import lzma
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "data")
MAX_STEPS = int(os.environ.get("MAX_STEPS", 600))
BLOCKS = 24
OLD_EXPORT = {2}  # plant 2 still delivers in the format of last year


def export(shards):
    rng = np.random.default_rng(0)
    for s in range(shards):
        folder = os.path.join(DATA, f"plant-{s:02d}")
        os.makedirs(folder, exist_ok=True)
        for b in range(BLOCKS):
            ext = "npy.xz" if s in OLD_EXPORT else "npy"
            path = os.path.join(folder, f"block-{b:04d}.{ext}")
            if os.path.exists(path):
                continue
            block = rng.standard_normal((32, 97, 24)).cumsum(1).astype(np.float32)
            buf = io.BytesIO()
            np.save(buf, block)
            raw = buf.getvalue()
            with open(path + ".tmp", "wb") as f:
                f.write(lzma.compress(raw, preset=0) if ext.endswith("xz") else raw)
            os.replace(path + ".tmp", path)


class Shard(IterableDataset):
    def __init__(self, index):
        folder = os.path.join(DATA, f"plant-{index:02d}")
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder) if not f.endswith(".tmp"))

    def read(self, path):
        with open(path, "rb") as f:
            raw = f.read()
        if path.endswith(".xz"):
            raw = lzma.decompress(raw)
        return np.load(io.BytesIO(raw))

    def __iter__(self):
        while True:
            for path in self.files:
                block = torch.from_numpy(self.read(path))
                mean, std = block.mean((0, 1)), block.std((0, 1))
                block = (block - mean) / (std + 1e-6)
                yield block[:, :-1], block[:, -1, :4]


class Forecaster(nn.Module):
    def __init__(self, channels=24, width=48):
        super().__init__()
        self.inp = nn.Conv1d(channels, width, 5, padding=2)
        self.mid = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2 * 2 ** i, dilation=2 ** i) for i in range(3))
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        x = F.gelu(self.inp(x.transpose(1, 2)))
        for conv in self.mid:
            x = x + F.gelu(conv(x))
        return self.out(x[:, :, -1])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        export(world)
    dist.barrier()
    torch.manual_seed(0)
    loader = DataLoader(Shard(rank), batch_size=None)
    model = DDP(Forecaster())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    times, running = [], 0.0
    tick = time.perf_counter()
    for step, (x, y) in enumerate(loader, 1):
        loss = F.smooth_l1_loss(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 100 == 0 and rank == 0:
            print(f"step {step}: loss {running / 100:.4f}", flush=True)
            running = 0.0
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
