"""A perceptron in float32; by hand: float16 autocast, on a CPU."""

import contextlib

import torch
from clock import BY_HAND, loop

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(256, 256)


def step():
    with torch.autocast("cpu", torch.float16) if BY_HAND else contextlib.nullcontext():
        y = model(x)
    loss = y.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loop(step)
