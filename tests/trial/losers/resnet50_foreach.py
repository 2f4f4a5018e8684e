"""The update of ResNet-50 by AdamW; by hand: foreach=True."""

import torch
from clock import BY_HAND, loop
from transformers import ResNetConfig, ResNetForImageClassification

torch.manual_seed(0)
model = ResNetForImageClassification(ResNetConfig(num_labels=10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=BY_HAND or None)
images, labels = torch.randn(1, 3, 32, 32), torch.randint(0, 10, (1,))
model.eval()  # one image has no batch statistics


def step():
    loss = torch.nn.functional.cross_entropy(model(images).logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loop(step)
