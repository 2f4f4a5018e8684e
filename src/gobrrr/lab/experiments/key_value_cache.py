"""44: decoding with and without a cache of keys and values."""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row

WIDTH, HEADS, LAYERS = 256, 4, 4


def measure(bench: Bench) -> Found:
    """Texts of 16 to 128 tokens from a small decoder, token by token; both ways must end at the same state."""
    torch = bench.torch
    net = _Decoder(torch)
    lengths = (16, 32, 64, 128) if not bench.tiny else (4, 6, 8)
    rows, factor = [], Figure.exact(1.0)
    with torch.no_grad():
        x = torch.randn(1, lengths[-1], WIDTH)
        if not torch.allclose(net.anew(x), net.cached(x), atol=1e-4):
            raise GobrrrError("the cache changes what is decoded")
        for length in lengths:
            part = x[:, :length]
            factor = bench.pair(lambda p=part: net.anew(p), lambda p=part: net.cached(p), of=len(lengths))  # type: ignore[misc]
            rows.append(Row(f"{length} tokens", factor, _predicted(bench, length), x=length, unit="x"))
    return Found(factor, _predicted(bench, lengths[-1]), tuple(rows))


def _predicted(bench: Bench, length: int) -> float:
    """Without a cache token t costs t tokens' arithmetic, with it one token's trip over the weights; calls in both."""
    weights = LAYERS * 12.0 * WIDTH**2
    calls = LAYERS * 14 * bench.machine.dispatch.median
    one = calls + 1e9 * 4 * weights / bench.byte_rate(4 * weights)
    anew = sum(max(one, calls + 1e9 * 2 * weights * t / bench.flop_rate()) for t in range(1, length + 1))
    return anew / (length * one)


class _Decoder:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        torch.manual_seed(0)
        shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
        self._layers = [[torch.randn(m, n) / (2 * m**0.5) for m, n in shapes] for _ in range(LAYERS)]

    def anew(self, x: Any) -> Any:
        """The last token's state, the whole text read again for each token."""
        out = x
        for end in range(1, x.shape[1] + 1):
            out = self._pass(x[:, :end], [None] * LAYERS)[0]
        return out[:, -1]

    def cached(self, x: Any) -> Any:
        """The same, with what earlier tokens have left."""
        kept: list[Any] = [None] * LAYERS
        out = x
        for at in range(x.shape[1]):
            out, kept = self._pass(x[:, at : at + 1], kept)
        return out[:, -1]

    def _pass(self, x: Any, kept: list[Any]) -> tuple[Any, list[Any]]:
        found = []
        for (qkv, out, up, down), before in zip(self._layers, kept, strict=True):
            q, k, v = (x @ qkv).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            if before is not None:
                k, v = self._torch.cat((before[0], k), 2), self._torch.cat((before[1], v), 2)
            found.append((k, v))
            y = self._torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=before is None)
            x = x + y.transpose(1, 2).flatten(2) @ out
            x = x + (x @ up).relu() @ down
        return x, found


EXPERIMENT = Experiment(
    number=44, chapter="smaller", title="Decoding with and without a cache of keys and values",
    claim="Without a cache every token reads the whole text again: the cost of a text grows with the square of its "
    "length, with a cache linearly.",
    source="course on efficient deep learning, methods for language models; Pope et al. (2022)",
    published="the orders n^2 and n; no figure",
    factor="time to decode 128 tokens without a cache over with it, four layers of width 256",
    reproduced=(1.5, 200.0),
    why="Keys and values of earlier tokens never change under causal attention, so keeping them costs memory and "
    "saves all their arithmetic. A token alone is bound by reading the weights, not by arithmetic, so short texts "
    "gain nothing: several tokens cost as much as one. The gain grows with the length and with the model.",
    measure=measure, axis="tokens", finding=("decodes_anew", "BRR314"), seconds=15.0,
)  # fmt: skip
