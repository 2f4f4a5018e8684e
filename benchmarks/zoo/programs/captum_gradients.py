"""Explains predictions one by one with captum's integrated gradients, after its first tutorial."""

import torch
from captum.attr import IntegratedGradients
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(512, 10),
).eval()
explain = IntegratedGradients(model)
images = torch.randn(80, 1, 3, 32, 32)
total = 0.0
for image in images:
    target = model(image).argmax(dim=1)
    attributions, delta = explain.attribute(image, target=target, n_steps=50, return_convergence_delta=True)
    total += attributions.abs().sum().item()
print(f"{total / len(images):.1f}")
