import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = int(os.environ.get("STEPS", 520))
USERS, ITEMS, HISTORY = 3000, 1500, 10


def interactions(n=64000):
    g = torch.Generator().manual_seed(90)
    user = torch.randint(0, USERS, (n,), generator=g)
    item = torch.randint(0, ITEMS, (n,), generator=g)
    seen = torch.randint(0, ITEMS, (n, HISTORY), generator=g)
    stars = ((user * 7 + item * 3) % 5).float() / 4 + 0.05 * torch.randn(n, generator=g)
    return TensorDataset(user, item, seen, stars)


class TwoTower(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.user = nn.Embedding(USERS, d)
        self.item = nn.Embedding(ITEMS, d)
        self.seen = nn.EmbeddingBag(ITEMS, d, mode="mean")
        self.left = nn.Sequential(nn.Linear(2 * d, 384), nn.ReLU(), nn.Dropout(0.1), nn.Linear(384, 128))
        self.right = nn.Sequential(nn.Linear(d, 384), nn.ReLU(), nn.Dropout(0.1), nn.Linear(384, 128))

    def forward(self, user, item, seen):
        u = self.left(torch.cat([self.user(user), self.seen(seen)], dim=1))
        v = self.right(self.item(item))
        return (u * v).sum(1) / 11.3


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(14)
    model = DDP(TwoTower())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    data = interactions()
    sampler = DistributedSampler(data, shuffle=True, seed=2)
    loader = DataLoader(data, batch_size=512, sampler=sampler, num_workers=0, drop_last=True)
    if rank == 0:
        print(sum(p.numel() for p in model.parameters()), "parameters,", len(loader), "batches per epoch")

    step, epoch = 0, 0
    recent = torch.zeros(2)
    while step < STEPS:
        sampler.set_epoch(epoch)
        for user, item, seen, stars in loader:
            score = model(user, item, seen)
            loss = nn.functional.mse_loss(score, stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent += torch.tensor([loss.item(), (score - stars).abs().mean().item()])
            step += 1
            if step % 50 == 0:
                dist.all_reduce(recent)
                mse, mae = (recent / (50 * world)).tolist()
                print(f"rank {rank} step {step} mse {mse:.4f} mae {mae:.4f}", flush=True)
                recent.zero_()
            if step >= STEPS:
                break
        epoch += 1
    if rank == 0:
        torch.save(model.module.state_dict(), os.devnull)
    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
