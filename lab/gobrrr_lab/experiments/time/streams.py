"""9: copies beside compute on a stream of their own."""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found


def measure(bench: Bench) -> Found:
    """A pinned batch copied and multiplied, one after the other and on two streams."""
    torch = bench.torch
    size = bench.size(4096, 64)
    host, x = torch.rand(size, size).pin_memory(), torch.rand(size, size, device="cuda")
    there, side = torch.empty_like(x), torch.cuda.Stream()

    def in_turn() -> None:
        there.copy_(host, non_blocking=True)
        x @ x

    def beside() -> None:
        with torch.cuda.stream(side):
            there.copy_(host, non_blocking=True)
        x @ x
        torch.cuda.current_stream().wait_stream(side)

    return Found(bench.pair(in_turn, beside), None)


EXPERIMENT = Experiment(
    number=9, chapter="time", title="Copy and compute: in turn, or on two streams",
    claim="A pinned, asynchronous copy on a stream of its own runs beside kernels: the step takes the longer of "
    "both, not the sum.",
    source="course EDLS, week 1",
    published="1.07 to 0.576 s (2026), 1.18 to 0.69, 1.1 to 0.58: 1.7 to 1.9 times; two streams of small kernels "
    "1.07 to 1.08 ms: no gain",
    factor="time in turn over time on two streams, 64 MiB copied beside a product of 4096 x 4096",
    reproduced=(1.2, 2.0),
    why="A device has engines for copies beside its multiprocessors. The gain is largest where both take as long. "
    "From pageable memory the driver copies through a buffer of its own, and waits. Two kernels that each fill the "
    "device gain nothing on two streams.",
    measure=measure, needs=("torch", "device"), seconds=8.0,
)  # fmt: skip
