"""Message passing on small molecule graphs, data parallel by hand."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

MAX_STEPS = int(os.environ.get("MAX_STEPS", "400"))
ATOMS, GRAPHS, DIM, LAYERS = 18, 14, 128, 6


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        self.update = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, adj):
        m = adj @ (self.message(h) * torch.sigmoid(self.gate(h)))
        return self.norm(h + self.update(torch.cat([h, m], -1)))


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom = nn.Embedding(16, DIM)
        self.layers = nn.ModuleList([Layer(DIM) for _ in range(LAYERS)])
        self.out = nn.Sequential(nn.Linear(DIM, DIM), nn.SiLU(), nn.Linear(DIM, 1))

    def forward(self, atoms, adj):
        h = self.atom(atoms)
        for layer in self.layers:
            h = layer(h, adj)
        return self.out(h).sum(1).squeeze(-1)


@torch.no_grad()
def average_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        parts = [torch.empty_like(p.grad) for _ in range(world)]
        dist.all_gather(parts, p.grad)
        p.grad.copy_(torch.stack(parts).mean(0))


def molecules(g):
    atoms = torch.randint(0, 16, (GRAPHS, ATOMS), generator=g)
    bond = (torch.rand(GRAPHS, ATOMS, ATOMS, generator=g) < 0.2).float()
    adj = ((bond + bond.transpose(1, 2)) > 0).float()
    energy = (atoms.float().mean(1) - 7.5) / 4 + adj.mean((1, 2))
    return atoms, adj / adj.sum(-1, keepdim=True).clamp(min=1), energy


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(40)
    model = Energy()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    begin = time.time()
    for step in range(MAX_STEPS):
        atoms, adj, energy = molecules(g)
        loss = F.mse_loss(model(atoms, adj), energy)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} mse {loss.item():.3f}", flush=True)
    if rank == 0:
        print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
