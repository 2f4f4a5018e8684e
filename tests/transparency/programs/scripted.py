"""TorchScript that opens a record_function, and an optimizer's step that is compiled, where a warning is an error."""

from fingerprint import fingerprint  # isort: skip

import logging
import warnings

import numpy
import torch
from torch import nn


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        with torch.autograd.profiler.record_function("head"):
            y = self.layer(x)
        return y


warnings.simplefilter("error", UserWarning)
logging.disable(logging.WARNING)  # dynamo's own lines have the time of day
numpy.random.seed(0)
torch.manual_seed(4)
named, plain = torch.jit.script(Named()), nn.Linear(8, 1)
first, second = (torch.optim.AdamW(net.parameters(), 1e-2) for net in (named, plain))


@torch.compile(backend="eager")
def update():
    second.step()


for _ in range(130):
    x = torch.randn(16, 8)
    loss = named(x).pow(2).mean() + plain(x).pow(2).mean()
    first.zero_grad()
    second.zero_grad()
    loss.backward()
    first.step()
    update()
    fingerprint.losses.append(loss.item())
again = torch.jit.script(Named())  # once more, in a step that is watched or not
fingerprint.add("scripted", str(again.graph))
fingerprint.end(named, plain, first, second)
