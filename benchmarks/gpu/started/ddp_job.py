"""A job of ranks under DistributedDataParallel, each on its device where there are enough; `--late MS` lets the last
rank take so long for each batch. Each rank prints its median step by its own clock."""

import argparse
import itertools
import os
import time

import torch
import torch.distributed as dist
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
WIDTH, DEPTH, BATCH = (32, 2, 16) if "TINY" in os.environ else (2048, 8, 1024)


def batches(device, late_ms):
    while True:
        time.sleep(late_ms / 1e3)  # <- late
        yield torch.randn(2, BATCH, WIDTH, device=device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--late", type=float, default=0.0)
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    alone = DEVICE == "cuda" and torch.cuda.device_count() >= world
    device = torch.device(f"cuda:{rank if alone else 0}" if DEVICE == "cuda" else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if alone else "gloo")
    torch.manual_seed(rank)
    body = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*body).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times = []
    for step, (x, y) in enumerate(batches(device, args.late if rank == world - 1 else 0.0)):
        if step == args.steps:
            break
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"rank {rank}  step {step}  loss {loss.item():.4f}", flush=True)
            times.append(time.perf_counter())
    spans = sorted((after - before) / 20 for before, after in itertools.pairwise(times[1:]))
    print(f"rank {rank} by {dist.get_backend()}: step_ms {1e3 * spans[len(spans) // 2]:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
