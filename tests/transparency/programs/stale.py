"""A program that relies on autograd's errors: what was saved is written before its backward, a graph is used twice."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch.utils.checkpoint import checkpoint

numpy.random.seed(0)
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Sigmoid(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
errors = []


def failing(step, backward):
    try:
        backward()
    except RuntimeError as error:
        errors.append((step, str(error)[:60]))


for step in range(160):
    x = torch.randn(16, 8)
    loss, second = model(x).square().mean(), model(x).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=step % 3 == 0)
    optimizer.step()
    failing(step, second.backward)  # the weights that it saved were written
    failing(step, loss.backward)  # freed, or stale
    hidden = model[0](x).sigmoid()
    product = (hidden * hidden).sum()
    hidden.detach().zero_()
    failing(step, product.backward)
    again = checkpoint(model, x.requires_grad_(), use_reentrant=False).sum()
    (penalty,) = torch.autograd.grad(model(x).exp().sum(), x, create_graph=True)
    (again + 1e-4 * penalty.square().sum()).backward()
    fingerprint.losses.append(loss.item())
fingerprint.add("errors", errors)
assert len(errors) == 480, len(errors)
fingerprint.end(model, optimizer)
