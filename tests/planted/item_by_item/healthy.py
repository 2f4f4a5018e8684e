"""Logistic-regression-like training on a table that fits in memory."""

import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
args = parser.parse_args()

features = torch.randn(150_000, 48)
features = (features - features.mean(dim=0)) / features.std(dim=0)
labels = (features[:, 0] * features[:, 1] > 0).long()
table = TensorDataset(features, labels)
rows = BatchSampler(RandomSampler(table), batch_size=2048, drop_last=False)
loader = DataLoader(table, sampler=rows, batch_size=None)

model = nn.Sequential(nn.Linear(48, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()

step = 0
while step < args.steps:
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
        step += 1
        if step == args.steps:
            break
