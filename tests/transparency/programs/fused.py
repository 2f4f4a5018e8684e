"""An optimizer for every weight steps inside the backward pass, as torch's tutorial on saving memory has it."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch

numpy.random.seed(0)
torch.manual_seed(3)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(10)])
optimizers = {weight: torch.optim.AdamW([weight], lr=0.01) for weight in model.parameters()}


def update(weight):
    optimizers[weight].step()
    optimizers[weight].zero_grad()


for weight in model.parameters():
    weight.register_post_accumulate_grad_hook(update)
for _ in range(130):
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    fingerprint.losses.append(loss.item())
fingerprint.end(model)
