"""Quantised layers whose weight is an opaque object: the outputs are known only from what the op allocates inside."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import NotCounted, Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import read, written

LINEARS = "linear_dynamic linear_relu_dynamic linear linear_relu linear_dynamic_fp16 linear_relu_dynamic_fp16"


@formula([f"quantized::{name}" for name in LINEARS.split()])
def linear(call: Call) -> Work:
    """(x (..., k), packed weight, ...): the first allocation inside has the shape of the result (..., n). The weight is
    int8 (float16 for the fp16 forms)."""
    x = call.tensor(0)
    results = [size for size in call.inner if size[:-1] == x.shape[:-1]]
    if not results:
        raise NotCounted("the number of outputs is inside the packed weight")
    outputs, inputs = results[0][-1], x.shape[-1]
    weight = outputs * inputs * (2 if call.name.endswith("fp16") else 1)
    return work("matmul", 2 * x.numel * outputs, read(x), weight, math.prod(results[0]) * x.itemsize)


@formula("quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel")
def quantize(call: Call) -> Work:
    """Float to int8: scale, round, clamp."""
    x = call.tensor(0)
    return work("elementwise", 3 * x.numel, read(x), x.numel)


@formula("dequantize")
def dequantize(call: Call) -> Work:
    """int8 to float32: subtract, scale."""
    x = call.tensor(0)
    return work("elementwise", 2 * x.numel, read(x), 4 * x.numel)


@formula("fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask")
def fake_quantize(call: Call) -> Work:
    """Scale, round, clamp, scale back; writes a mask of booleans too."""
    x = call.tensor(0)
    return work("elementwise", 5 * x.numel, read(x), written(x), x.numel)
