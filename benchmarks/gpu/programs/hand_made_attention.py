"""A causal transformer without its products' mixing in one kernel."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
WIDTH, HEADS, DEPTH, BATCH, LENGTH = (64, 2, 1, 2, 128) if TINY else (1024, 16, 4, 4, 2048)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("hidden", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, x):
        heads = self.qkv(self.norm(x)).view(len(x), LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5  # <- BRR105
        scores = scores.masked_fill(self.hidden, float("-inf"))
        mixed = scores.softmax(-1) @ value  # <- BRR105
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(*(Attention() for _ in range(DEPTH))).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x, y = torch.randn(2, BATCH, LENGTH, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
