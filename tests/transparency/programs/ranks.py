"""Data-parallel training on two gloo ranks; each writes its fingerprint beside the file that argv names."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

numpy.random.seed(0)
dist.init_process_group("gloo")
torch.manual_seed(11)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
model = DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(12):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        fingerprint.losses.append([loss.item(), total.item()])
dist.barrier()
dist.destroy_process_group()
fingerprint.end(inner, optimizer)
