"""Nets whose ops are told: a Conformer-like block, and a small ResNet."""

from __future__ import annotations

from typing import Any


class Block:
    """Conformer-like: half a feed-forward, attention, a depthwise convolution, half a feed-forward, each normed."""

    def __init__(self, torch: Any, width: int) -> None:
        nn = torch.nn
        self._first, self._last = (
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self._qkv, self._out, self._heads = nn.Linear(width, 3 * width), nn.Linear(width, width), 4
        inner, outer = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        depthwise = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self._conv = nn.Sequential(inner, nn.GLU(1), depthwise, nn.BatchNorm1d(width), nn.SiLU(), outer).eval()

    def to(self, device: str) -> Block:
        """Its parts there, itself."""
        for part in (self._first, self._last, self._qkv, self._out, self._conv):
            part.to(device)
        return self

    def __call__(self, x: Any) -> Any:
        x = x + 0.5 * self._first(x)
        q, k, v = self._qkv(x).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self._out((scores @ v).transpose(1, 2).flatten(2))
        x = x + self._conv(x.transpose(1, 2)).transpose(1, 2)
        return x + 0.5 * self._last(x)


def residual_net(torch: Any, width: int) -> Any:
    """A stem and two residual blocks, the second at half the size and twice the channels, for evaluation."""
    nn = torch.nn

    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            first, second = (
                nn.Conv2d(before, after, 3, stride, 1, bias=False),
                nn.Conv2d(after, after, 3, 1, 1, bias=False),
            )
            self.way = nn.Sequential(first, nn.BatchNorm2d(after), nn.ReLU(), second, nn.BatchNorm2d(after))
            self.past = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            return (self.way(x) + self.past(x)).relu()

    stem = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)
    return nn.Sequential(*stem, Residual(width, width, 1), Residual(width, 2 * width, 2), *head).eval()
