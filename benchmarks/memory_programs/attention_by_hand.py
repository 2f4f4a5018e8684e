# limit: data 1.5GiB | holder: activations | first: sdpa
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # fix[sdpa]: y = nn.functional.scaled_dot_product_attention(q, k, v)
        # fix[attention_scores]: y = nn.functional.scaled_dot_product_attention(q, k, v)
        scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5  # dies, unless: sdpa, attention_scores
        y = scores.softmax(-1) @ v  # dies, unless: sdpa, attention_scores
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


model = nn.Sequential(*(Attention(128, 4) for _ in range(6)), nn.Linear(128, 8))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    x = torch.randn(2, 3072, 128)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
