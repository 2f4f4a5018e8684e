"""Tied weights, and forward, backward, tensor and optimizer hooks of the user's own."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

numpy.random.seed(0)
torch.manual_seed(2)
calls = []


class Watchful(type(nn.Module)):
    @property
    def __name__(cls):  # who asks for it is noticed
        calls.append("asked for a name")
        return "Nobody"


class Embedding(nn.Embedding, metaclass=Watchful):
    pass


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = Embedding(32, 16)
        self.lazy = nn.LazyLinear(16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, scale=1.0):
        hidden = self.lazy(self.embed(tokens)) * scale
        return self.head(hidden)


class Loud(nn.Linear):
    def __call__(self, *args, **kwargs):  # people do override it
        calls.append("loud")
        return super().__call__(*args, **kwargs)


model, tail = Tied(), Loud(32, 8)
model(torch.zeros(1, 2, dtype=torch.long))
model.embed.register_forward_hook(lambda m, args, out: (calls.append("forward"), out * 1.5)[1])
model.head.register_full_backward_hook(lambda m, gi, go: calls.append("backward"))
model.register_forward_pre_hook(lambda m, args, kw: (args, {**kw, "scale": 0.5}), with_kwargs=True)
model.embed.weight.register_hook(lambda g: g * 0.9)
model.lazy.weight.register_post_accumulate_grad_hook(lambda p: calls.append("accumulated"))
nn.modules.module.register_module_forward_hook(lambda m, args, out: calls.append(type(m).__name__))
optimizer = torch.optim.SGD([*model.parameters(), *tail.parameters()], lr=0.01, momentum=0.9)
optimizer.register_step_post_hook(lambda o, a, k: calls.append("mine"))
register_optimizer_step_pre_hook(lambda o, a, k: calls.append("global before"))
register_optimizer_step_post_hook(lambda o, a, k: calls.append("global after"))
for _ in range(130):
    tokens = torch.randint(0, 32, (4, 8))
    loss = tail(model(tokens)).square().mean() + model.head.weight.abs().mean()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())
    calls.append(optimizer.param_groups[0]["params"][0].grad.norm().item())
fingerprint.add("calls", [len(calls), repr(calls[-60:])])
fingerprint.add("tied", model.head.weight is model.embed.weight)
fingerprint.end(model, tail, optimizer)
