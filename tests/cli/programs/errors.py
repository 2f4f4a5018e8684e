"""Prints the tracebacks of errors in forward, in a hook, in backward, in an update, in a dataset and in a worker."""

import sys
import traceback
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent


class Broken(torch.nn.Module):
    def forward(self, x):
        raise ValueError("in forward")


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0.5

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("in backward")


class Optimizer(Descent):
    def step(self, closure=None):
        raise ArithmeticError("in step")


class Data(Dataset):
    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == self.bad:
            raise KeyError("in getitem")
        return torch.ones(2)


def train(model, steps=15):
    optimizer = Descent(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()


def hooked():
    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(lambda m, args, out: 1 / 0)
    model(torch.ones(2, 2))


def updated():
    model = torch.nn.Linear(2, 2)
    Optimizer(model.parameters(), lr=0.1).step()


def closed():
    next(iter(DataLoader([])))


train(torch.nn.Linear(2, 2))
for fails in (
    lambda: torch.nn.Sequential(torch.nn.Linear(2, 2), Broken())(torch.ones(2, 2)),
    lambda: Broken()(torch.ones(1)),
    hooked,
    lambda: Halves.apply(torch.ones(2, requires_grad=True)).sum().backward(),
    updated,
    lambda: list(DataLoader(Data(5), batch_size=2)),
    lambda: list(DataLoader(Data(5), batch_size=2, num_workers=1)),
    lambda: torch.nn.Linear(2, 2)(torch.ones(3)),
    lambda: torch.nn.Linear(2, 2)(),
    lambda: torch.nn.Linear(2, 2)(wrong=1),
    closed,
):
    try:
        fails()
    except Exception:
        traceback.print_exc()
        print(len(traceback.extract_stack()), file=sys.stderr)
train(torch.nn.Linear(2, 2))
raise SystemError("at the end")
