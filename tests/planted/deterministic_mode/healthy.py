"""Reads prompts into a key-value cache that has room for the longest answer."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class CachedLayer(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        cache[0, :, :, :length] = key
        cache[1, :, :, :length] = value
        mixed = F.scaled_dot_product_attention(query, cache[0, :, :, :length], cache[1, :, :, :length], is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(batch, length, width)
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, width: int = 128, num_heads: int = 4, depth: int = 4, room: int = 6144) -> None:
        super().__init__()
        self.tokens = nn.Embedding(512, width)
        self.layers = nn.ModuleList(CachedLayer(width, num_heads) for _ in range(depth))
        self.head = nn.Linear(width, 512)
        self.cache_shape = (2, 1, num_heads, room, width // num_heads)

    def forward(self, prompt: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        x, caches = self.tokens(prompt), []
        for layer in self.layers:
            cache = torch.empty(self.cache_shape)
            x = layer(x, cache)
            caches.append(cache)
        return self.head(x[:, -1]), caches


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    decoder = Decoder().eval()
    for request in range(args.steps):
        prompt = torch.randint(0, 512, (1, 128))
        logits, caches = decoder(prompt)
        if request % 75 == 0:
            print(f"request {request:4d}  first token {logits.argmax().item()}  caches {len(caches)}")


if __name__ == "__main__":
    main()
