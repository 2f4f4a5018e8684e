"""Fills the stack in each step, some with calls of its model on the way; says what its RecursionErrors hold."""

import json
import sys

import torch
from torch import nn
from torch.autograd.profiler import record_function

sys.setrecursionlimit(300)  # soon full
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
losses, told, depths = [], set(), []


def deep(x, each):
    """With `each` the model is called on every level: the last ones come to no end."""
    if each:
        model(x)
    deep(x, each)


def annotated(depth):
    """An annotation on every level, of which the last comes to no end either."""
    with record_function("level"):
        depths[-1] = depth
    annotated(depth + 1)


for step in range(150):
    depths.append(0)
    try:
        annotated(1)
    except RecursionError:
        pass
    x = torch.randn(8, 6)
    try:
        deep(x, step >= 140)
    except RecursionError as error:
        trace = error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            told.update([name] if "gobrrr" in name else [])
            trace = trace.tb_next
        told.update([str(error), type(error.__context__).__name__] if step < 140 else [])
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[-1])
with open(sys.argv[1], "w") as file:
    json.dump({"num_losses": len(losses), "told": sorted(told), "depths": sorted({*depths})}, file)
