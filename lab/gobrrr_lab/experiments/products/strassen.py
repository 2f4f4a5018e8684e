"""13: seven products instead of eight."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

ADDITIONS = 18
"""Additions of quarter matrices in one level of Strassen's scheme; each reads two and writes one."""


def measure(bench: Bench) -> Found:
    """One level of Strassen over the library's product, for sizes up to 3072; and both errors against float64."""
    torch = bench.torch
    sizes = (512, 1024, 2048, 3072) if not bench.tiny else (16, 32, 64)
    rows, factor = [], Figure.exact(1.0)
    for size in sizes:
        a, b = torch.rand(size, size) - 0.5, torch.rand(size, size) - 0.5
        factor = bench.pair(lambda a=a, b=b: a @ b, lambda a=a, b=b: strassen(a, b), of=len(sizes))  # type: ignore[misc]
        rows.append(Row(f"{size}", factor, _predicted(bench, size), x=size, unit="x"))
    exact = a.double() @ b.double()
    for name, product in (("library", a @ b), ("Strassen", strassen(a, b))):
        error = ((product.double() - exact).norm() / exact.norm()).item()
        rows.append(Row(f"error of the {name}, {sizes[-1]}", Figure.exact(error)))
    return Found(factor, _predicted(bench, sizes[-1]), tuple(rows))


def strassen(a: Any, b: Any) -> Any:
    """The product of two square matrices of even size, by seven products of their quarters."""
    h = a.shape[0] // 2
    a11, a12, a21, a22 = a[:h, :h], a[:h, h:], a[h:, :h], a[h:, h:]
    b11, b12, b21, b22 = b[:h, :h], b[:h, h:], b[h:, :h], b[h:, h:]
    m1, m2, m3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    m4, m5, m6 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12)
    m7 = (a12 - a22) @ (b21 + b22)
    c = a.new_empty(a.shape)
    c[:h, :h], c[:h, h:] = m1 + m4 - m5 + m7, m3 + m5
    c[h:, :h], c[h:, h:] = m2 + m4, m1 - m2 + m3 + m6
    return c


def _predicted(bench: Bench, size: int) -> float:
    quarter = 4.0 * (size / 2) ** 2
    product = 1e9 * 2.0 * size**3 / bench.flop_rate()
    additions = ADDITIONS * (1e9 * 3 * quarter / bench.byte_rate(3 * quarter) + bench.fresh_ns(quarter))
    return product / (7 / 8 * product + additions)


EXPERIMENT = Experiment(
    number=13, chapter="products", title="Strassen: seven products of quarters instead of eight",
    claim="A product can be had with 7 of the 8 products of quarters, so with 7/8 of the multiplications.",
    source="Strassen, Gaussian elimination is not optimal (1969); course on efficient deep learning",
    published="7 products of 8: at most 1.14 times as fast per level",
    factor="time of the library's product over that of one level of Strassen on top of it, 3072 x 3072, fp32",
    reproduced=(1.02, 1.2),
    why="The eighth product is bought with 18 additions of quarters, which only move memory. Products grow with "
    "the cube of the size and additions with its square, so there is a size from which it pays; the faster the "
    "arithmetic is beside the memory, the larger that size. The sums of large terms that cancel make the error a "
    "little larger. Libraries use it nowhere by default.",
    measure=measure, axis="rows of the matrices", seconds=24.0,
)  # fmt: skip
