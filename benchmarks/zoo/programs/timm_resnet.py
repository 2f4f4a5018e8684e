"""A small residual net of timm trained on random pictures."""

import timm
import torch
from timm.optim import create_optimizer_v2

torch.manual_seed(0)
model = timm.create_model("resnet10t", pretrained=False, num_classes=10)
optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01)
for step in range(60):
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(0, 10, (8,))
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f}")
