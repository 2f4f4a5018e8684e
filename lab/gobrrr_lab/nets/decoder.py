"""A small decoder that reads a text whole, or goes on from what it has kept of it."""

from __future__ import annotations

from typing import Any

WIDTH, HEADS, LAYERS = 256, 4, 4
OPS = 14
"""Ops of a layer."""


class Decoder:
    """Causal attention and two linear layers, four times, with drawn weights."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        torch.manual_seed(0)
        shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
        self._layers = [[torch.randn(m, n) / (2 * m**0.5) for m, n in shapes] for _ in range(LAYERS)]

    def anew(self, x: Any) -> Any:
        """The last token's state, the whole text read again for each token."""
        return [self.read(x[:, :end])[0] for end in range(1, x.shape[1] + 1)][-1][:, -1]

    def cached(self, x: Any) -> Any:
        """The same, with what earlier tokens have left."""
        out, kept = self.read(x[:, :1])
        for at in range(1, x.shape[1]):
            out, kept = self.read(x[:, at : at + 1], kept)
        return out[:, -1]

    def read(self, x: Any, kept: Any = None) -> tuple[Any, list[Any]]:
        """States of x, one token where something is kept; and keys and values of all that was read."""
        found = []
        for (qkv, out, up, down), before in zip(self._layers, kept or [None] * LAYERS, strict=True):
            q, k, v = (x @ qkv).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            if before is not None:
                k, v = self._torch.cat((before[0], k), 2), self._torch.cat((before[1], v), 2)
            found.append((k, v))
            y = self._torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=before is None)
            x = x + y.transpose(1, 2).flatten(2) @ out
            x = x + (x @ up).relu() @ down
        return x, found


def cost(way: str, length: int) -> tuple[float, float]:
    """FLOPs, and bytes of weights and cache, of a token after `length` others. Weights multiply every token that
    is read, and each of those looks at all."""
    read = length + 1 if way == "without" else 1
    weights, cache = LAYERS * 12.0 * WIDTH**2, LAYERS * 2.0 * WIDTH * length * (way == "with")
    return 2 * weights * read + LAYERS * 4.0 * WIDTH * read * (length + 1), 4 * (weights + cache)
