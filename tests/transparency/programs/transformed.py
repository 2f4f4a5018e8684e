"""A program that looks into modules: fx, script, trace, functional calls, function and dispatch modes."""

from fingerprint import fingerprint  # isort: skip
from seen import digest  # isort: skip

import copy

import numpy
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

numpy.random.seed(0)
torch.manual_seed(9)


class CountsFunctions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class CountsOps(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
functions, ops = CountsFunctions(), CountsOps()
with functions, ops:
    for step in range(130):
        x = torch.randn(4, 8)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fingerprint.losses.append(loss.item())
fingerprint.add("functions", [len(functions.seen), digest(functions.seen)])
fingerprint.add("ops", [len(ops.seen), digest(ops.seen)])
traced = torch.fx.symbolic_trace(model)
fingerprint.add("graph", [traced.code, [str(node) for node in traced.graph.nodes]])
fingerprint.add("scripted", torch.jit.script(copy.deepcopy(model)).code)
fingerprint.add("traced", str(torch.jit.trace(model, torch.ones(2, 8)).graph))
params = dict(model.named_parameters())
per_sample = vmap(grad(lambda p, x: functional_call(model, p, (x,)).sum()), (None, 0))(params, torch.ones(3, 8))
fingerprint.add("per_sample", digest(per_sample))
with torch.device("meta"):
    fingerprint.add("meta", str(nn.Linear(2, 2).weight.device))
for step in range(10):
    loss = traced(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())
fingerprint.end(model, optimizer)
