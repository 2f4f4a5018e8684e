"""Forecasting on machine telemetry streamed from object storage, one list of shards per rank."""
import json
import os
import pathlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = int(os.environ.get("MAX_STEPS", "620"))
BATCH, ROWS, CHANNELS, WINDOW = 8, 192, 6, 40
BANDWIDTH = 2.4e6


class Bucket:
    """Local stand-in for the object store."""

    def __init__(self, root, rank, shards=4):
        self.paths = []
        g = torch.Generator().manual_seed(rank)
        for s in range(shards):
            path = pathlib.Path(root) / f"part-{rank}-{s}.jsonl"
            with path.open("w") as f:
                for _ in range(ROWS):
                    row = (torch.randn(CHANNELS, generator=g).cumsum(0) * 100).round().int().tolist()
                    f.write(json.dumps({"base": row, "pad": "0" * 1900}) + "\n")
            self.paths.append(path)

    def get(self, path):
        body = path.read_bytes()
        time.sleep(len(body) / BANDWIDTH)
        return body


def parse(body):
    base = torch.tensor([json.loads(line)["base"] for line in body.splitlines()], dtype=torch.float32)
    t = torch.linspace(0, 6, WINDOW + 1)
    return torch.sin(t[None, :, None] * (1 + base[:, None, :] / 300))


def stream(bucket, rank, world):
    # ranks begin at different places so that they don't all hit the store at once
    at = (rank * ROWS // world) // BATCH * BATCH
    turn = 0
    while True:
        rows = parse(bucket.get(bucket.paths[turn % len(bucket.paths)]))
        turn += 1
        for i in range(at, ROWS, BATCH):
            part = rows[i:i + BATCH]
            yield part[:, :-1], part[:, -1]
        at = 0


class Forecaster(nn.Module):
    def __init__(self, dim=176):
        super().__init__()
        self.inp = nn.Linear(CHANNELS, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, CHANNELS)

    def forward(self, x):
        return self.out(self.rnn(self.inp(x))[0][:, -1])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(Forecaster())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as root:
        feed = stream(Bucket(root, rank), rank, world)
        begin = time.time()
        for step in range(MAX_STEPS):
            x, y = next(feed)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 100 == 0:
                print(f"step {step} mse {loss.item():.4f}", flush=True)
        if rank == 0:
            print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
