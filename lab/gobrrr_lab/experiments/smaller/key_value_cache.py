"""44: decoding with and without a cache of keys and values, by length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gobrrr.errors import GobrrrError
from gobrrr.trial.statistics.paired import interval
from gobrrr_lab.measure.bench import Bench, middle_of
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.decoder import LAYERS, OPS, WIDTH, Decoder, cost

LENGTHS, ROUNDS = (64, 128, 256, 512), 15
REPEATS = 4
"""Calls of a time."""


def measure(bench: Bench) -> Found:
    """One token more after texts of 64 to 512, the whole read again and with what the text has left: time by length,
    the slope of both on logarithmic axes in each round, and what FLOPs, bytes and calls say of the slope."""
    torch = bench.torch
    net = Decoder(torch)
    lengths = LENGTHS if not bench.tiny else (4, 8, 16)
    with torch.no_grad():
        x = torch.randn(1, lengths[-1] + 1, WIDTH)
        if not torch.allclose(net.anew(x[:, :24]), net.cached(x[:, :24]), atol=1e-4):
            raise GobrrrError("the cache changes what is decoded")
        calls: dict[str, dict[int, Callable[[], Any]]] = {"without": {}, "with": {}}
        for n in lengths:
            text, token = x[:, :n], x[:, n : n + 1]
            kept = net.read(text)[1]
            calls["without"][n] = lambda t=x[:, : n + 1]: net.read(t)  # type: ignore[misc]
            calls["with"][n] = lambda t=token, k=kept: net.read(t, k)  # type: ignore[misc]
        walls = _rounds(calls, bench.size(ROUNDS, 2))
    rows, slopes, predicted = [], {}, {}
    for way in calls:
        said = {n: _predicted(bench, way, n) for n in lengths}
        times = {n: [each[way, n] for each in walls] for n in lengths}
        rows += [Row(f"token {n + 1}, {way} cache", middle_of(times[n]), said[n], n, "ns", way) for n in lengths]
        slopes[way] = _slope([slope({n: each[way, n] for n in lengths}) for each in walls])
        predicted[way] = slope(said)
    rows += [Row(f"slope of a token, {way} cache", slopes[way], predicted[way]) for way in calls]
    totals = {way: slope({n: total(bench, way, n) for n in lengths}) for way in calls}
    rows += [Row(f"slope of a whole text, {way} cache, by formula", Figure.exact(s)) for way, s in totals.items()]
    apart = [slope({n: each["without", n] / each["with", n] for n in lengths}) for each in walls]
    return Found(_slope(apart), predicted["without"] - predicted["with"], tuple(rows))


def slope(times: dict[int, float]) -> float:
    """Return the slope of the line through the logarithms: the power of the length that time grows with."""
    x, y = (np.log(np.asarray(list(each), float)) for each in (times.keys(), times.values()))
    return float(np.polyfit(x, y, 1)[0])


def total(bench: Bench, way: str, length: int) -> float:
    """Nanoseconds of all tokens of a text."""
    return sum(_predicted(bench, way, n) for n in range(length))


def _slope(each: list[float]) -> Figure:
    low, high = interval(np.asarray(each))
    return Figure(float(np.median(each)), low, high)


def _rounds(calls: dict[str, dict[int, Callable[[], Any]]], rounds: int) -> list[dict[tuple[str, int], float]]:
    """Nanoseconds of each call, once a round in turn: what disturbs a round disturbs all of it. One warms up."""
    found = []
    for _ in range(rounds + 1):
        walls = {}
        for (way, n), call in {(way, n): call for way, by in calls.items() for n, call in by.items()}.items():
            began = time.perf_counter_ns()
            for _ in range(REPEATS):
                call()
            walls[way, n] = (time.perf_counter_ns() - began) / REPEATS
        found.append(walls)
    return found[1:]


def _predicted(bench: Bench, way: str, length: int) -> float:
    """Calls, then the longer of FLOPs and bytes."""
    flops, moved = cost(way, length)
    return LAYERS * OPS * bench.machine.dispatch.median + max(
        1e9 * flops / bench.flop_rate(), 1e9 * moved / bench.byte_rate(moved)
    )


EXPERIMENT = Experiment(
    number=44, chapter="smaller", title="Decoding with and without a cache of keys and values",
    claim="Without a cache every token reads the whole text again: the cost of a text grows with the square of its "
    "length, with a cache linearly.",
    source="course on efficient deep learning, methods for language models; Pope et al. (2022)",
    published="the orders n^2 and n; no figure",
    factor="power of the length that the cost of a token grows with, without the cache less with it, 64 to 512 tokens",
    reproduced=(0.6, 1.3), unit="",
    why="Keys and values of earlier tokens never change under causal attention, so keeping them costs memory and "
    "saves all their arithmetic. A token alone is bound by reading the weights, not by arithmetic, so it costs the "
    "same at any length until the cache is as large as they are; without a cache the products grow with the text, and "
    "attention with its square. A power for each token is one more for the text.",
    measure=measure, axis="tokens before", finding=("decodes_anew", "BRR314"), seconds=15.0,
)  # fmt: skip
