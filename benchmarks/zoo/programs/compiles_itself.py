"""A program that compiles its own model, and then feeds it batches whose length changes every time."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
model = torch.compile(nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(80):
    length = 64 + step * 7 % 64
    inputs, labels = torch.randn(8, length, 128), torch.randint(0, 16, (8, length))
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f}")
