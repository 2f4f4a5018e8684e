"""38: copies from pinned and from pageable memory."""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """64 MiB to the device from both kinds of memory."""
    torch = bench.torch
    count = bench.size(1 << 24, 1 << 10)
    pageable, pinned = torch.rand(count), torch.rand(count).pin_memory()
    there = torch.empty(count, device="cuda")
    factor = bench.pair(lambda: there.copy_(pageable), lambda: there.copy_(pinned), of=2)
    ns = bench.time(lambda: there.copy_(pinned), of=2)
    rate = Figure(*(1e9 * 4 * count / each for each in (ns.value, ns.high, ns.low)))
    return Found(factor, None, (Row("from pinned memory", rate, unit="B/s"),))


EXPERIMENT = Experiment(
    number=38, chapter="data", title="Copies to the device: pinned or pageable",
    claim="Pinned memory is copied by the device itself at the link's rate; pageable memory goes through a buffer "
    "first.",
    source="NVIDIA, CUDA C++ Best Practices Guide; course on efficient deep learning",
    published="some 2 times the rate over PCIe; no table",
    factor="time of 64 MiB from pageable over pinned memory",
    reproduced=(1.3, 5.0),
    why="A page that may be moved cannot be read by the device: the driver copies it into pinned memory and waits. "
    "Pinning costs time itself, so it pays for buffers that are used again, as a loader's.",
    measure=measure, needs=("torch", "device"), finding=None, seconds=8.0,
)  # fmt: skip
