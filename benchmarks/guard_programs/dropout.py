"""A classifier with much dropout."""

import torch
from parts import classes, train
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)
)
train(net, torch.optim.Adam(net.parameters(), lr=1e-3), classes(250, (64,)), nn.functional.cross_entropy)
