"""Writes text with a small model, reading all of it for each word."""

import argparse

import torch
from torch import nn

WIDTH, HEADS, LAYERS, WORDS, LONGEST = 256, 4, 4, 2000, 768


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, past: list[torch.Tensor]) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if past:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        past[:] = [k, v]
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.mlp(self.norms[1](x))


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor, past: list[list[torch.Tensor]]) -> torch.Tensor:
        begin = past[0][0].shape[2] if past[0] else 0
        x = self.words(ids) + self.places(torch.arange(begin, begin + ids.shape[1]))
        for block, kept in zip(self.blocks, past):
            x = block(x, kept)
        return self.head(x[:, -1])


@torch.inference_mode()
def write(num_steps: int) -> None:
    model = Writer().eval()
    ids = torch.randint(0, WORDS, (4, 256))
    for _ in range(num_steps):
        logits = model(ids, [[] for _ in range(LAYERS)])  # <- BRR314
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    print(ids[0, -10:].tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    write(args.steps)
