import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

STEPS = int(os.environ.get("STEPS", 400))
NODES, EDGES, FEATS = 1500, 9000, 16


class RoadNet(torch.nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.conv1 = GCNConv(FEATS, hidden)
        self.conv2 = GCNConv(hidden, hidden)
        self.conv3 = GCNConv(hidden, hidden)
        self.lin = torch.nn.Linear(hidden, 1)

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        x = x + F.relu(self.conv2(x, edge_index))
        x = x + F.relu(self.conv3(x, edge_index))
        return self.lin(x).squeeze(-1)


def make_days(rank, n=24):
    g = torch.Generator().manual_seed(50 + rank)
    roads = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(50))
    days = []
    for d in range(n):
        x = torch.randn(NODES, FEATS, generator=g)
        y = x[:, :4].sum(1) + 0.1 * torch.randn(NODES, generator=g)
        days.append(Data(x=x, edge_index=roads, y=y, day=d))
    return days


def main():
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(RoadNet())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    days = make_days(rank)
    outdir = tempfile.mkdtemp(prefix="traffic_")
    ids = np.arange(NODES)

    for step in range(STEPS):
        day = days[step % len(days)]
        pred = model(day.x, day.edge_index)
        loss = F.smooth_l1_loss(pred, day.y)
        opt.zero_grad()
        loss.backward()
        opt.step()

        if rank == world - 1:
            table = np.column_stack([ids, day.x[:, :4].numpy(), pred.detach().numpy(), day.y.numpy()])
            with open(os.path.join(outdir, f"day{day.day:03d}.csv"), "w") as f:
                f.write("node,flow,speed,lanes,rain,pred,target\n")
                np.savetxt(f, table, fmt=["%d"] + ["%.5f"] * 6, delimiter=",")

        if step % 100 == 0 and rank == 0:
            print("step", step, "loss", round(loss.item(), 4), flush=True)

    time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
