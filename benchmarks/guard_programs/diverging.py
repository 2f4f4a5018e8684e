"""Training that diverges: after some updates two runs have nothing in common but their seed."""

import torch
from parts import classes, train
from torch import nn

torch.manual_seed(0)
hidden = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), *hidden, nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=4.0, momentum=0.9)
train(net, optimizer, classes(200, (32,)), nn.functional.cross_entropy)
