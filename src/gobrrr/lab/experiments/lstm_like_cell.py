"""32: a cell of an LSTM without forget gate: Python against compiled."""

from __future__ import annotations

from typing import Any

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Found, Row

BATCH, FEATURES, STATE = 16, 32, 128


def measure(bench: Bench) -> Found:
    """Forward, and forward and backward, of the cell in ops of torch and compiled by torch.compile."""
    torch = bench.torch
    state = bench.size(STATE, 8)
    weights = torch.randn(3 * state, FEATURES + state).requires_grad_()
    bias = torch.randn(3 * state).requires_grad_()
    x, h, c = torch.randn(BATCH, FEATURES), torch.randn(BATCH, state), torch.randn(BATCH, state)

    def cell(x: Any, h: Any, c: Any) -> Any:
        gates = torch.nn.functional.linear(torch.cat((h, x), 1), weights, bias)
        update, output, candidate = gates.chunk(3, 1)
        c = c + torch.nn.functional.elu(candidate) * update.sigmoid()
        return c.tanh() * output.sigmoid(), c

    compiled = torch.compile(cell)

    def backward(way: Any) -> None:
        (h_new, c_new) = way(x, h, c)
        (h_new.sum() + c_new.sum()).backward()

    backward(compiled)
    factor = bench.pair(lambda: backward(cell), lambda: backward(compiled), of=4)
    forward = bench.pair(lambda: cell(x, h, c), lambda: compiled(x, h, c), of=4)
    alone = bench.time(lambda: cell(x, h, c), of=4)
    both = bench.time(lambda: backward(cell), of=4)
    rows = (
        Row("forward, compiled", forward, unit="x"),
        Row("forward in Python", alone, unit="ns"),
        Row("forward and backward in Python", both, unit="ns"),
    )
    cause = (
        f"A call of the compiled cell checks its guards and enters generated code: that costs more than the few calls "
        f"of torch that it saves in {both.value / 1e3:.0f} us."
        if factor.high < 1 else ""
    )  # fmt: skip
    return Found(factor, None, rows, cause)


EXPERIMENT = Experiment(
    number=32, chapter="kernels", title="An LSTM-like cell in Python and compiled",
    claim="A cell of small ops written in Python pays for every call; as one extension in C++ or as CUDA kernels "
    "it is faster.",
    source="PyTorch tutorial, Custom C++ and CUDA Extensions; course on efficient deep learning",
    published="forward/backward 187.7/410.8 us in Python, 149.8/393.5 in C++, 129.4/304.6 in CUDA: 1.38 times in "
    "all",
    factor="forward and backward in Python over compiled, batch 16, state 128",
    reproduced=(1.1, 4.0),
    why="A dozen ops on 2,000 numbers each are bound by their calls. The published C++ version calls the same ops "
    "without Python, which hardly matters; CUDA joins them. torch.compile writes that joined kernel itself, in C++ "
    "on a CPU and in Triton on a GPU: an extension by hand is rarely needed for pointwise chains today. C++ by hand "
    "and Triton were not measured here.",
    measure=measure, finding=("cell_in_python", "BRR301"), needs=("torch", "compiler"), seconds=12.0,
)  # fmt: skip
