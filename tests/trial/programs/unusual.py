"""Trainings whose first loop is not the one that trains. Words: `gan` has two optimizers in turn, `evaluates` does so
first and every 20 updates, `by_hand` has no optimizer, `thread` trains in one of its own."""

import sys
import threading
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent

what = sys.argv[1]
torch.manual_seed(0)
model, other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
optimizers = [] if what == "by_hand" else [Descent(m.parameters(), lr=0.01) for m in (other, model)]


@torch.no_grad()
def evaluate():
    for _ in range(50):
        model(torch.ones(4, 8))


def train():
    for step in range(5_000):
        if what == "evaluates" and step % 20 == 0:
            evaluate()
        for module, optimizer in zip((other, model), optimizers or (None, None), strict=True):
            if what != "gan" and module is other:
                continue
            module(torch.ones(4, 8)).square().mean().backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
            else:
                for parameter in module.parameters():
                    parameter.data.add_(parameter.grad, alpha=-0.01)
                    parameter.grad = None


if what == "thread":
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
else:
    train()
