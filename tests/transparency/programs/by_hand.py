"""No optimizer, in a thread of its own: every way to start a backward pass, a kept `__call__`, then a compilation."""

import threading

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch.utils.checkpoint import checkpoint

numpy.random.seed(0)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
hooked = torch.nn.Linear(8, 8)
hooked.register_forward_hook(lambda module, given, result: None)
called = []


def passes(step, loss):
    parameters = list(model.parameters())
    if step % 3 == 0:
        return torch.autograd.grad(loss, parameters)
    if step % 3 == 1:
        torch.autograd.backward(loss)
    else:
        loss.backward()
    found = [parameter.grad for parameter in parameters]
    model.zero_grad()
    return found


def train():
    call = model.__call__
    for step in range(200):
        x = torch.randn(16, 8, requires_grad=True)
        loss = (checkpoint(call, x, use_reentrant=True) if step % 3 else call(x)).square().mean()
        for parameter, gradient in zip(model.parameters(), passes(step, loss), strict=True):
            parameter.data.add_(gradient, alpha=-0.05)
        fingerprint.losses.append(loss.item())
    with torch.no_grad():
        called.append([call(torch.ones(1, 8)).sum().item() for _ in range(20)])
        compiled = torch.compile(lambda x: hooked(x).relu(), backend="eager")
        called.append([compiled(torch.ones(1, 8)).sum().item() for _ in range(5)])


thread = threading.Thread(target=train)
thread.start()
thread.join()
counters = torch._dynamo.utils.counters
fingerprint.add("called", called)
fingerprint.add("graphs", [counters["stats"].get("unique_graphs"), len(counters["graph_break"])])
fingerprint.add("engine", type(torch.autograd.Variable._execution_engine).__name__)
fingerprint.end(model)
