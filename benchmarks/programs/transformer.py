"""Trains a small transformer on random tokens for as long as it is let; a step takes some tens of milliseconds."""

import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
body = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
table, head = torch.nn.Embedding(1000, 128), torch.nn.Linear(128, 1000)
net = torch.nn.Sequential(table, body, head)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
tokens = torch.randint(0, 1000, (8, 65))
for _ in range(10_000_000):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
