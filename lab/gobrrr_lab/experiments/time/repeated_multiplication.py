"""4: multiplications are free until the roofline's knee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

COUNTS = (1, 4, 16, 64, 128)
EAGER = (1, 4, 16)
JUDGED = 16  # multiplications judged against one: below the knee that the source has, 32 to 64


def measure(bench: Bench) -> Found:
    """One compiled loop over a tensor that no cache holds, with 1 to 128 multiplications per element; eager as well."""
    torch = bench.torch
    x = torch.rand(bench.size(1 << 24, 1 << 10))
    counts = COUNTS if not bench.tiny else (1, JUDGED)
    calls = {count: _compiled(bench, count, x) for count in counts}
    of = len(counts) + len(EAGER) + 1
    factor = bench.pair(calls[JUDGED], calls[1], of=of)
    floor = 1e9 * 8 * x.numel() / bench.byte_rate(8.0 * x.numel()) + bench.fresh_ns(4.0 * x.numel())
    each = 1e9 * x.numel() / (bench.flop_rate() / 2)
    rows = [
        Row(f"{n}, compiled", bench.time(call, of=of), max(floor, n * each), x=n, unit="ns", series="compiled")
        for n, call in calls.items()
    ]
    for n in EAGER:
        eager = bench.time(lambda n=n: _times(x, n), of=of)  # type: ignore[misc]
        rows.append(Row(f"{n}, eager", eager, n * floor, n, "ns", "eager"))
    knee = floor / each
    return Found(factor, max(1.0, JUDGED / knee), tuple(rows), f"The knee lies at {knee:.0f} multiplications here.")


def _compiled(bench: Bench, count: int, x: Any) -> Callable[[], object]:
    compiled = bench.torch.compile(lambda x: _times(x, count), dynamic=False)
    compiled(x)
    return lambda: compiled(x)


def _times(x: Any, count: int) -> Any:
    for _ in range(count):
        x = x * 1.0001
    return x


EXPERIMENT = Experiment(
    number=4, chapter="time", title="One to 128 multiplications per element: where does time begin to grow?",
    claim="A fused pointwise kernel takes as long for 16 multiplications per element as for one; only from some 32 "
    "to 64 on does arithmetic cost.",
    source="Horace He, Making Deep Learning Go Brrrr From First Principles (2022)",
    published="flat up to 32 to 64 multiplications on an A100; eager needs a trip to memory for each",
    factor="time of 16 multiplications over that of one, both compiled, 2^24 elements of fp32",
    reproduced=(0.8, 1.3),
    why="A kernel waits for the slower of its bytes and its arithmetic. The knee is the machine's FLOP/s over its "
    "bytes per second, times the 8 bytes of an element. An A100 does 9.75 T multiplications and 0.75 T elements a "
    "second; a CPU has a lower knee because its memory is nearer to its arithmetic. A product counts two FLOPs for "
    "each multiply-add, so multiplications alone reach half of that ceiling. A result that is too large for the "
    "allocator comes in fresh pages, which cost a CPU more than the trip itself.",
    measure=measure, finding=("repeated_multiplication", "BRR201"),
    needs=("torch", "compiler"), axis="multiplications per element", seconds=20.0,
)  # fmt: skip
