"""Forty layers without a residual connection: rounding grows from layer to layer."""

import torch
from parts import Attention, rows, train
from torch import nn

V, W = 100, 32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm, self.linear = Attention(W, dropout=0.0), nn.LayerNorm(W), nn.Linear(W, W)

    def forward(self, x):
        return torch.tanh(self.linear(self.norm(self.attention(x))))


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(V, W), *(Layer() for _ in range(40)), nn.Linear(W, V))
train(
    model,
    torch.optim.Adam(model.parameters(), lr=1e-3),
    rows(200, 12, V),
    lambda logits, y: nn.functional.cross_entropy(logits.view(-1, V), y.view(-1)),
)
