"""ResNet-18 in bfloat16; by hand: torch.compile."""

import torch
from clock import BY_HAND, loop
from transformers import ResNetConfig, ResNetForImageClassification

torch.manual_seed(0)
sizes = {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 2, 2], "layer_type": "basic"}
model = ResNetForImageClassification(ResNetConfig(num_labels=10, **sizes)).to(memory_format=torch.channels_last)
if BY_HAND:
    model.compile()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(8, 3, 64, 64).to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (8,))


def step():
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images).logits
    loss = torch.nn.functional.cross_entropy(logits.float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loop(step)
