"""32: a cell of an LSTM without forget gate: Python, compiled, C++, Triton."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row
from gobrrr_lab.nets.lltm import Cell, by_cpp, by_ops, by_triton

BATCH, FEATURES, STATE = 16, 32, 128


def measure(bench: Bench) -> Found:
    """Forward, and forward and backward, of the cell each way; gradients of all must agree with those in Python."""
    torch, state = bench.torch, bench.size(STATE, 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes: dict[str, tuple[int, ...]] = {"x": (BATCH, FEATURES), "h": (BATCH, state), "c": (BATCH, state)}
    shapes |= {"weight": (3 * state, FEATURES + state), "bias": (3 * state,)}
    given = {name: (torch.randn(shape, device=device) / 4).requires_grad_() for name, shape in shapes.items()}
    ways: dict[str, Cell] = {"Python": by_ops, "compiled": torch.compile(by_ops)}
    missing = ""
    with tempfile.TemporaryDirectory(prefix="gobrrr-lab-") as folder:
        ways["C++"] = by_cpp(folder)
        try:
            ways["Triton"] = by_triton()
        except GobrrrError as error:
            missing = error.message
        for name, way in ways.items():
            _agree(torch, way, by_ops, given, name)
        if "Triton" in ways and device == "cpu":
            ways.pop("Triton")
            missing = (
                "Triton's kernels, interpreted, agree with Python's cell; without a device their time is unverified."
            )
        return _timed(bench, ways, given, missing)


def _timed(bench: Bench, ways: dict[str, Cell], given: dict[str, Any], missing: str) -> Found:
    def ahead(way: Cell) -> Callable[[], object]:
        def call() -> object:
            with bench.torch.no_grad():
                return way(*given.values())

        return call

    def step(way: Cell) -> Callable[[], object]:
        return lambda: sum(each.sum() for each in way(*given.values())).backward()

    of, rows = 3 * len(ways), []
    for name, way in ways.items():
        rows.append(Row(f"{name}, forward", bench.time(ahead(way), of=of), unit="ns"))
        rows.append(Row(f"{name}, forward and backward", bench.time(step(way), of=of), unit="ns"))
    base = step(ways["Python"])
    found = {name: bench.pair(base, step(way), of=of) for name, way in ways.items() if name != "Python"}
    rows += [Row(f"Python over {name}", figure, unit="x") for name, figure in found.items()]
    return Found(found["C++"], None, tuple(rows), missing)


def _agree(torch: Any, way: Cell, other: Cell, given: dict[str, Any], name: str) -> None:
    """New state and all gradients for slopes that differ; raises GobrrrError."""
    slopes = [torch.rand_like(given["h"]) for _ in range(2)]

    def found(way: Cell) -> list[Any]:
        out = way(*given.values())
        return [*out, *torch.autograd.grad(out, list(given.values()), slopes)]

    if not all(torch.allclose(*pair, atol=1e-4) for pair in zip(found(way), found(other), strict=True)):
        raise GobrrrError(f"the cell by {name} computes something else")


EXPERIMENT = Experiment(
    number=32, chapter="kernels", title="An LSTM-like cell: Python, compiled, C++, Triton",
    claim="A cell of small ops written in Python pays for every call; as one extension in C++ or as CUDA kernels "
    "it is faster.",
    source="PyTorch tutorial, Custom C++ and CUDA Extensions; course on efficient deep learning",
    published="forward/backward 187.7/410.8 us in Python, 149.8/393.5 in C++, 129.4/304.6 in CUDA: 1.10 and 1.38 times "
    "in all",
    factor="forward and backward in Python over the C++ extension, batch 16, state 128",
    reproduced=(1.03, 3.0),
    why="A dozen ops on 2,000 numbers each are bound by their calls. The C++ extension calls the same ops without "
    "Python and without autograd's node for each, its backward is written out; CUDA and Triton join all between the "
    "products. torch.compile writes that joined kernel itself, in C++ on a CPU and in Triton on a GPU, and checks "
    "its guards at each call: an extension by hand is rarely needed for pointwise chains today.",
    measure=measure, finding=("cell_in_python", "BRR301"), needs=("torch", "compiler", "ninja"), seconds=15.0,
)  # fmt: skip
