"""Per-sample gradients with torch.func, after PyTorch's tutorials: functional calls, updates made by hand."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, 1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(16 * 13 * 13, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
params = {name: value.detach() for name, value in model.named_parameters()}
images, labels = torch.randn(32 * 20, 1, 28, 28), torch.randint(0, 10, (32 * 20,))


def compute_loss(params, sample, target):
    predictions = functional_call(model, params, (sample.unsqueeze(0),))
    return nn.functional.cross_entropy(predictions, target.unsqueeze(0))


per_sample = vmap(grad(compute_loss), in_dims=(None, 0, 0))
for step in range(80):
    at = step % 20 * 32
    gradients = per_sample(params, images[at : at + 32], labels[at : at + 32])
    for name, each in gradients.items():
        norm = each.flatten(1).norm(dim=1).clamp(min=1.0)
        clipped = each / norm.view(-1, *[1] * (each.dim() - 1))
        params[name] = params[name] - 0.1 * clipped.mean(0)
print(f"{sum(value.abs().sum().item() for value in params.values()):.0f}")
