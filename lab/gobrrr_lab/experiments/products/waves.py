"""15: tiles and waves, on paper."""

from __future__ import annotations

import math

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

UNITS, TILE = 108, 128
"""Multiprocessors of an A100, and rows and columns of the tile that one of them computes."""
SIZES = (1024, 1408, 1536, 1664, 2048, 4096, 8192)


def measure(bench: Bench) -> Found:
    """Share of the tiles' work that is asked for, by size; counted for an A100, timed nowhere."""
    shares = {size: efficiency(size) for size in SIZES}
    rows = tuple(Row(f"{size} x {size}", Figure.exact(100 * share), x=size, unit="%") for size, share in shares.items())
    return Found(Figure.exact(efficiency(1280) / efficiency(1408)), None, rows)


def efficiency(size: int) -> float:
    """Return that of a square product: tiles over those of full waves, times how full the tiles at the edge are."""
    tiles = math.ceil(size / TILE)
    waves = math.ceil(tiles**2 / UNITS)
    return (size / (tiles * TILE)) ** 2 * tiles**2 / (waves * UNITS)


EXPERIMENT = Experiment(
    number=15, chapter="products", title="Tiles and waves: the last wave is rarely full (on paper)",
    claim="A GPU computes a product in waves of one tile per multiprocessor: one tile more than a full wave "
    "doubles the time.",
    source="NVIDIA, Matrix Multiplication Background: user's guide (tile and wave quantisation)",
    published="A100: 108 multiprocessors, tiles of 128 x 128 or 256 x 128; 109 tiles take two waves",
    factor="efficiency with 100 tiles (1280 x 1280) over that with 121 (1408 x 1408)",
    reproduced=(1.5, 2.0),
    why="100 tiles fill 93 % of a wave; 121 need a second one that is nearly empty, so 56 % of both is work. "
    "Larger products have many waves and lose little at the last. Libraries choose other tiles, or split the sums, "
    "where that helps. This is counted: whether a device does so is for `gobrrr diagnose` to see in its kernels.",
    measure=measure, needs=(), axis="size", seconds=1.0,
)  # fmt: skip
