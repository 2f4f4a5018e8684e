"""29: attention written out, tiled, and in torch's kernel, by length."""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

HEADS, WIDTH, TILE = 8, 64, 128


def measure(bench: Bench) -> Found:
    """Forward for lengths up to 2048; time, bytes moved and scores held by each way; all three must agree."""
    torch = bench.torch
    lengths = (256, 512, 1024, 2048) if not bench.tiny else (16, 32, 64)
    rows, factor = [], Figure.exact(1.0)
    for length in lengths:
        q, k, v = torch.randn(3, 1, HEADS, length, WIDTH).unbind()
        exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        if not all(torch.allclose(way(q, k, v), exact, atol=1e-4) for way in (naive, tiled)):
            raise GobrrrError("ways of attention differ")
        factor = bench.pair(
            lambda q=q, k=k, v=v: naive(q, k, v),  # type: ignore[misc]
            lambda q=q, k=k, v=v: torch.nn.functional.scaled_dot_product_attention(q, k, v),  # type: ignore[misc]
            of=2 * len(lengths),
        )
        rows.append(Row(f"{length} positions", factor, _predicted(bench, length), x=length, unit="x"))
    by_tiles = bench.pair(lambda: naive(q, k, v), lambda: tiled(q, k, v), of=2 * len(lengths))
    rows.append(Row(f"{lengths[-1]} positions, tiles by hand", by_tiles, unit="x"))
    ways = {"written out": naive, "tiles by hand": tiled, "torch's kernel": _kernel}
    for name, way in ways.items():
        for n in lengths:
            parts = (q[..., :n, :], k[..., :n, :], v[..., :n, :])
            ns = bench.time(lambda w=way, p=parts: w(*p), of=16)  # type: ignore[misc]
            rows.append(Row(f"{n} positions, {name}: time", ns, unit="ns"))
    for n in lengths:
        for name, (moved, held) in {"written out": num_bytes(n, False), "in tiles": num_bytes(n, True)}.items():
            rows.append(Row(f"{n} positions, {name}: bytes moved", Figure.exact(moved), unit="B"))
            rows.append(Row(f"{n} positions, {name}: scores held", Figure.exact(held), unit="B"))
    return Found(factor, _predicted(bench, lengths[-1]), tuple(rows))


def num_bytes(length: int, in_tiles: bool) -> tuple[float, float]:
    """(moved between memory and a core, scores held), all heads. Written out: q, k, v in and the result out, scores
    through a product, a division, a softmax and a product: written and read three times. In tiles no score leaves, but
    for each tile of queries keys and values come once more."""
    row, scores = 4.0 * HEADS * length * WIDTH, 4.0 * HEADS * length
    if in_tiles:
        return 2 * row + 2 * row * -(-length // TILE), scores * min(TILE, length)
    return 4 * row + 6 * scores * length, scores * length


def _kernel(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v)


def naive(q: Any, k: Any, v: Any) -> Any:
    """softmax(q k / sqrt(d)) v with all scores at once."""
    return (q @ k.transpose(-1, -2) / WIDTH**0.5).softmax(-1) @ v


def tiled(q: Any, k: Any, v: Any) -> Any:
    """The same over tiles of keys, with the running maximum and sum of the online softmax."""
    most, whole, out = q.new_full((*q.shape[:-1], 1), -1e30), q.new_zeros((*q.shape[:-1], 1)), 0.0 * q
    for begin in range(0, k.shape[-2], TILE):
        scores = q @ k[..., begin : begin + TILE, :].transpose(-1, -2) / WIDTH**0.5
        higher = scores.amax(-1, keepdim=True).maximum(most)
        weights, shrunk = (scores - higher).exp(), (most - higher).exp()
        whole, out, most = (
            whole * shrunk + weights.sum(-1, keepdim=True),
            out * shrunk + weights @ v[..., begin : begin + TILE, :],
            higher,
        )
    return out / whole


def _predicted(bench: Bench, length: int) -> float:
    """Products at the ceiling in both; written out, the scores are read or written five times and divided once more."""
    products = 1e9 * 4.0 * HEADS * length**2 * WIDTH / bench.flop_rate()
    scores = 4.0 * HEADS * length**2
    passes = 6 * 1e9 * scores / bench.byte_rate(2 * scores) + 3 * bench.fresh_ns(scores)
    return (products + passes) / products


EXPERIMENT = Experiment(
    number=29, chapter="kernels", title="Attention: written out, tiled by hand, in torch's kernel",
    claim="Attention in tiles never holds all scores: a softmax can be merged over blocks, so memory grows with "
    "the length, not its square, and the step is several times as fast.",
    source="Dao et al., FlashAttention (2022); Milakov and Gimelshein, online softmax (2018)",
    published="GPT-2 trains 3.5 times as fast (small), 3.0 (medium) on A100s; 1.3 to 1.7 times over Megatron at 1k "
    "to 4k",
    factor="time written out over scaled_dot_product_attention, forward, 2048 positions, 8 heads of 64",
    reproduced=(1.3, 6.0),
    why="Scores of n positions are n x n numbers per head: written out they go to memory and back for the "
    "division, the softmax and the product. In tiles they stay in a cache; what was summed under a lower maximum is "
    "scaled down when a higher one comes. Tiles in Python pay for calls and win only the memory. On a CPU with "
    "large caches short lengths gain less.",
    measure=measure, finding=("hand_made_attention", "BRR105"), axis="positions", seconds=25.0,
)  # fmt: skip
