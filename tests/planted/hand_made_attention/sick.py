"""A two-layer character transformer on the source of the standard library."""

import argparse
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, num_heads: int, context: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(context, context, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        weights = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5  # <- BRR105
        weights = weights.masked_fill(~self.mask[:length, :length], float("-inf"))
        mixed = weights.softmax(dim=-1) @ value  # <- BRR105
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int, context: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalSelfAttention(width, num_heads, context)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    def __init__(self, width: int = 128, num_heads: int = 4, context: int = 768) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads, context) for _ in range(2)))
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x))


def batches(text: torch.Tensor, batch_size: int, context: int):
    while True:
        starts = torch.randint(0, len(text) - context - 1, (batch_size,)).tolist()
        rows = torch.stack([text[s : s + context + 1] for s in starts]).long()
        yield rows[:, :-1], rows[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()
    torch.manual_seed(0)
    text = torch.frombuffer(bytearray(Path(os.__file__).read_bytes()), dtype=torch.uint8)
    model = CharTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step, (inputs, targets) in zip(range(args.steps), batches(text, 2, 768)):
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
