"""Evaluation between epochs, checkpoints saved and loaded, recomputed activations, objects that must die in time."""

import copy
import io

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

numpy.random.seed(0)
torch.manual_seed(7)
died = []


class Canary:
    """Says when it dies: a watcher that keeps a frame's variables would let it live longer."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        died.append(self.number)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 16))

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=number == 0) if self.training else block(x)
        return self.norm(x)


def train(epoch):
    model.train()
    for step, (x,) in enumerate(loader):
        canary = Canary((epoch, step))
        x.requires_grad_()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fingerprint.losses.append([loss.item(), len(died)])
    del canary
    died.append("end")


@torch.no_grad()
def evaluate():
    model.eval()
    return sum(model(x).sum().item() for (x,) in loader)


class Lazy:
    """As lazy proxies do: asked for its class it makes what it stands for."""

    @property
    def __class__(self):
        died.append("made")
        return dict


@torch.no_grad()
def score(store, net):
    canary = Canary("scored")
    for number in range(60):
        if number == 40:
            del canary
            died.append("no longer needed")
        net(torch.ones(1, 4))


@torch.no_grad()
def predict(net, times):
    config = locals()
    for _ in range(times):
        net(torch.ones(1, 4))
    died.append(sorted(config))


data = TensorDataset(torch.randn(48, 16))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
best = None
for epoch in range(25):
    train(epoch)
    fingerprint.losses.append(evaluate())
    best = copy.deepcopy(model)
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    fingerprint.losses.append(len(saved.getvalue()))
    saved.seek(0)
    model.load_state_dict(torch.load(saved)["model"])
score(Lazy(), nn.Linear(4, 4))
predict(nn.Linear(4, 4), 60)
fingerprint.add("died", died)
fingerprint.end(model, best, optimizer)
