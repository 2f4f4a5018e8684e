"""A learning rate so high that two runs part by rounding alone."""

import torch
from parts import Block, rows, train
from torch import nn

V, W = 100, 32
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(V, W), Block(W), Block(W), nn.LayerNorm(W), nn.Linear(W, V))
train(
    model,
    torch.optim.Adam(model.parameters(), lr=0.3),
    rows(200, 12, V),
    lambda logits, y: nn.functional.cross_entropy(logits.view(-1, V), y.view(-1)),
)
