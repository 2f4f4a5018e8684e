"""A small residual net with batch norm, SGD with momentum and weight decay."""

import torch
from parts import classes, train
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return torch.relu(x + self.norm2(self.second(h)))


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), Residual(16), Residual(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
train(net, optimizer, classes(250, (3, 12, 12)), nn.functional.cross_entropy)
