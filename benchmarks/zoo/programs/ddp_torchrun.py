"""Data-parallel training under torchrun, after PyTorch's DDP tutorial, with gloo."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(6400, 256), torch.randint(0, 10, (6400,)))
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
    layers = [nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)]
    model = DDP(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print("batches", len(loader))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
