"""torch.func in every step: gradients of samples, a hessian, a forward-mode product, beside an ordinary backward."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch.func import functional_call, grad, hessian, jvp, vmap

numpy.random.seed(0)
torch.manual_seed(4)
model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def of_sample(parameters, x):
    return functional_call(model, parameters, (x[None],)).square().sum()


seen = []
for step in range(160):
    x = torch.randn(5, 8)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    each = vmap(grad(of_sample), in_dims=(None, 0))(parameters, x)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for name, p in model.named_parameters():
        p.grad += each[name].mean(0)
    optimizer.step()
    fingerprint.losses.append(loss.item())
    if step % 10 == 0:
        seen.append(hessian(lambda v: model(v).square().sum())(x[0]).sum().item())
        seen.append(jvp(model, (x,), (torch.ones_like(x),))[1].sum().item())
fingerprint.add("seen", seen)
fingerprint.end(model, optimizer)
