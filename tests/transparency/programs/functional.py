"""Steps that end inside transforms of torch.func: gradients of samples, drawn masks, a function of their own."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch.func import functional_call, grad, grad_and_value, jvp, vmap

numpy.random.seed(0)
torch.manual_seed(4)


class Squared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        levels.add(torch._C._functorch.get_dynamic_layer_stack_depth())
        return 2 * x * gradient


levels, keys = set(), set()
model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(6, 1))
params = {name: value.detach() for name, value in model.named_parameters()}


def of_sample(parameters, x):
    found = functional_call(model, parameters, (x[None],))
    levels.add(torch._C._functorch.get_dynamic_layer_stack_depth())
    keys.add(f"{torch._C._dispatch_tls_local_include_set()} {torch._C._dispatch_tls_local_exclude_set()}")
    return Squared.apply(found).sum()


per_sample = vmap(grad_and_value(of_sample), in_dims=(None, 0), randomness="different")
for step in range(160):
    x = torch.randn(5, 8)
    each, losses = per_sample(params, x)
    params = {name: value - 0.01 * each[name].mean(0) for name, value in params.items()}
    fingerprint.losses.append(losses.mean().item())
curved = []
for step in range(20):
    slope = grad(lambda v: functional_call(model, params, (v,)).square().sum())
    curved.append(jvp(slope, (x,), (torch.ones_like(x),))[1].sum().item())
fingerprint.add("curved", curved)
fingerprint.add("levels", sorted(levels))
fingerprint.add("params", [value.tolist() for value in params.values()])
fingerprint.add("keys", sorted(keys))
fingerprint.end(model, torch.optim.SGD(model.parameters(), lr=0.1))
