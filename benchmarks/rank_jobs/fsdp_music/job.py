"""Decoder over symbolic music events, sharded with FSDP2."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

MAX_STEPS = int(os.environ.get("MAX_STEPS", "290"))
EVENTS, SEQ, DIM, DEPTH = 512, 64, 160, 3


class Attention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (m.view(b, t, self.heads, -1).transpose(1, 2) for m in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim)
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Composer(nn.Module):
    def __init__(self):
        super().__init__()
        self.event = nn.Embedding(EVENTS, DIM)
        self.place = nn.Parameter(torch.zeros(SEQ, DIM))
        self.blocks = nn.ModuleList([Block(DIM) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, EVENTS)

    def forward(self, ids):
        x = self.event(ids) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def shard(model, mesh):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = shard(Composer(), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    g = torch.Generator().manual_seed(50 + rank)
    begin = time.time()
    for step in range(MAX_STEPS):
        first = torch.randint(0, EVENTS, (2, 1), generator=g)
        jump = torch.randint(1, 8, (2, 1), generator=g)
        song = (first + jump * torch.arange(SEQ + 1)) % EVENTS
        logits = model(song[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), song[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if rank == 0:
        print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
