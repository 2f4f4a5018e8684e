"""Attention without a mask in bfloat16, allocation mended; by hand: scaled_dot_product_attention."""

import ctypes

import torch
from clock import BY_HAND, loop
from torch.nn import functional as F

for threshold in (-1, -3):
    ctypes.CDLL(None).mallopt(threshold, 1 << 30)
torch.manual_seed(0)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(256, 768)

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 512, 3, 8, 32).permute(2, 0, 3, 1, 4)
        if BY_HAND:
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 512, 256)
        weights = torch.softmax(q @ k.transpose(-2, -1) * 32**-0.5, -1)
        return (weights @ v).transpose(1, 2).reshape(2, 512, 256)


model = Attention().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(2, 512, 256, dtype=torch.bfloat16)


def step():
    loss = model(x).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loop(step)
