"""Fits a price model to a table of measurements that NumPy made."""

import argparse

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
args = parser.parse_args()

torch.manual_seed(0)
rng = np.random.default_rng(0)
table = rng.normal(3, 2, size=(40_000, 96))
table = (table - table.mean(axis=0)) / table.std(axis=0)
prices = np.tanh(table[:, :8].sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(40_000, 1))

features = torch.from_numpy(table)
targets = torch.from_numpy(prices)
model = nn.Sequential(
    nn.Linear(96, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.ReLU(),
    nn.Linear(512, 1),
)
model = model.double()  # <- BRR101
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(args.steps):
    rows = torch.randint(0, len(features), (1024,))
    prediction = model(features[rows])  # <- BRR101
    loss = nn.functional.mse_loss(prediction, targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:4d}  loss {loss.item():.4f}")
