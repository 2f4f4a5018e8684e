"""The cell of lltm.py with all that lies between its products in one Triton kernel each way. Imports Triton.

It looks up the annotations of what it compiles, and lets none pass but its own.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

BLOCK = 128
"""Numbers of the state that a program computes: of one row."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sigmoid(z: tl.tensor) -> tl.tensor:
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _tanh(z: tl.tensor) -> tl.tensor:
    shrunk = tl.exp(-2.0 * tl.abs(z))  # never overflows
    size = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(z < 0, -size, size)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _elu(z: tl.tensor) -> tl.tensor:
    return tl.where(z > 0, z, tl.exp(tl.minimum(z, 0.0)) - 1.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _ahead(
    gates: tl.tensor, c: tl.tensor, h_new: tl.tensor, c_new: tl.tensor, state: tl.tensor, block: tl.constexpr
) -> None:
    row, column = tl.program_id(0), tl.program_id(1) * block + tl.arange(0, block)
    ours, third = column < state, gates + row * 3 * state + column
    update = _sigmoid(tl.load(third, mask=ours, other=0.0))
    output = _sigmoid(tl.load(third + state, mask=ours, other=0.0))
    candidate = _elu(tl.load(third + 2 * state, mask=ours, other=0.0))
    at = row * state + column
    new = tl.load(c + at, mask=ours, other=0.0) + candidate * update
    tl.store(c_new + at, new, mask=ours)
    tl.store(h_new + at, _tanh(new) * output, mask=ours)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _back(
    dh: tl.tensor, dc: tl.tensor, gates: tl.tensor, c_new: tl.tensor, slopes: tl.tensor, dc_old: tl.tensor,
    state: tl.tensor, block: tl.constexpr,
) -> None:  # fmt: skip
    row, column = tl.program_id(0), tl.program_id(1) * block + tl.arange(0, block)
    ours, at, third = column < state, row * state + column, row * 3 * state + column
    update = _sigmoid(tl.load(gates + third, mask=ours, other=0.0))
    output = _sigmoid(tl.load(gates + third + state, mask=ours, other=0.0))
    candidate = tl.load(gates + third + 2 * state, mask=ours, other=0.0)
    shown, slope = _tanh(tl.load(c_new + at, mask=ours, other=0.0)), tl.load(dh + at, mask=ours, other=0.0)
    inner = tl.load(dc + at, mask=ours, other=0.0) + slope * output * (1.0 - shown * shown)
    tl.store(dc_old + at, inner, mask=ours)
    tl.store(slopes + third, inner * _elu(candidate) * update * (1.0 - update), mask=ours)
    tl.store(slopes + third + state, slope * shown * output * (1.0 - output), mask=ours)
    rises = tl.where(candidate > 0, 1.0, tl.exp(tl.minimum(candidate, 0.0)))
    tl.store(slopes + third + 2 * state, inner * update * rises, mask=ours)


def ahead(x: Any, h: Any, c: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    """h and c, and what `back` needs."""
    both = torch.cat((h, x), 1)
    gates = torch.addmm(bias, both, weight.t())
    h_new, c_new = torch.empty_like(h), torch.empty_like(c)
    _ahead[_grid(c)](gates, c.contiguous(), h_new, c_new, c.shape[1], block=BLOCK)
    return h_new, c_new, both, gates, c_new


def back(dh: Any, dc: Any, both: Any, gates: Any, c_new: Any, weight: Any) -> tuple[Any, ...]:
    """Gradients of [h x], c, weight and bias."""
    slopes, dc_old = torch.empty_like(gates), torch.empty_like(c_new)
    _back[_grid(c_new)](dh.contiguous(), dc.contiguous(), gates, c_new, slopes, dc_old, c_new.shape[1], block=BLOCK)
    return slopes @ weight, dc_old, slopes.t() @ both, slopes.sum(0)


def _grid(c: Any) -> tuple[int, int]:
    return c.shape[0], triton.cdiv(c.shape[1], BLOCK)
