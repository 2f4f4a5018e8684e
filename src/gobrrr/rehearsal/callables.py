"""A side's description becomes something that can be called. Standard library and torch alone; only ops that are named
here are ever called, whatever a description says."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from gobrrr.rehearsal import layout, module_parts
from gobrrr.rehearsal.torch_dtypes import DTYPES, of_torch

Run = Callable[[], object]
PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv"})
CONVOLUTIONS = frozenset({"aten::mkldnn_convolution", "aten::convolution_backward", "aten::cudnn_convolution"})
ATTENTION = frozenset(
    {"aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}
)
NORMS = frozenset(
    {
        "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::native_batch_norm",
        "aten::native_batch_norm_backward", "aten::native_group_norm", "aten::native_group_norm_backward",
        "aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward",
    }
)  # fmt: skip
PASSES = frozenset(
    f"aten::{name}"
    for name in (
        "add", "add_", "sub", "mul", "mul_", "div", "div_", "pow", "neg", "exp", "tanh", "tanh_backward", "sigmoid",
        "sigmoid_backward", "relu", "relu_", "clamp_min", "clamp_min_", "threshold_backward", "gelu", "gelu_backward",
        "silu", "silu_", "silu_backward", "_softmax", "_softmax_backward_data", "_log_softmax",
        "_log_softmax_backward_data", "sum", "mean", "copy_", "avg_pool2d", "avg_pool2d_backward",
        "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "_adaptive_avg_pool2d",
        "_adaptive_avg_pool2d_backward", "native_dropout", "native_dropout_backward", "hardtanh", "hardtanh_",
        "hardswish", "hardswish_", "rsqrt", "sqrt", "addcmul",
    )
)  # fmt: skip
KNOWN = PRODUCTS | CONVOLUTIONS | ATTENTION | NORMS | PASSES  # ops that the stage can call


def make(torch: Any, side: dict[str, Any], device: str) -> Run:
    """Return the call of a side; raise ValueError where it cannot be made here."""
    makers: dict[str, Callable[[Any, dict[str, Any], str], Run]] = {
        "op": op, "cast": cast, "optimizer": module_parts.optimizer, "attention": module_parts.attention,
        "loss": module_parts.loss,
        "mask": module_parts.mask, "fresh": module_parts.fresh,
    }  # fmt: skip
    return makers[side["make"]](torch, side, device)


def cast(torch: Any, side: dict[str, Any], device: str) -> Run:
    """A tensor of so many elements into another dtype."""
    source = torch.ones(side["elements"], dtype=of_torch(torch, side["source"]), device=device)
    target = of_torch(torch, side["target"])
    return lambda: source.to(target)


def op(torch: Any, side: dict[str, Any], device: str) -> Run:
    """The op with inputs of the recorded shapes, dtypes and strides, under no_grad: backward ops are ops as well."""
    if side["name"] not in KNOWN:
        raise ValueError(f"{side['name']} is no op that is played again")
    packet = getattr(torch.ops.aten, side["name"].removeprefix("aten::"))
    for name in packet.overloads():
        overload = getattr(packet, name)
        if len(overload._schema.arguments) != len(side["shapes"]):
            continue
        arguments = overload._schema.arguments
        try:
            inputs = [_input(torch, side, i, arg, device) for i, arg in enumerate(arguments)]
        except (ValueError, SyntaxError, IndexError):
            continue
        inputs = _with_what_forward_kept(torch, side["name"], inputs)
        named = {a.name: value for a, value in zip(arguments, inputs, strict=True) if a.kwarg_only}
        placed = [value for a, value in zip(arguments, inputs, strict=True) if not a.kwarg_only]

        def run(overload: Any = overload, placed: list[Any] = placed, named: dict[str, Any] = named) -> object:
            with torch.no_grad():
                return overload(*placed, **named)

        run()
        return run
    raise ValueError(f"no overload of {side['name']} takes what was recorded")


def _with_what_forward_kept(torch: Any, name: str, inputs: list[Any]) -> list[Any]:
    """cuDNN's backward of a batch norm reads what its forward kept, whose size is the library's own affair."""
    if name != "aten::cudnn_batch_norm_backward":
        return inputs
    images, _, weight, epsilon = *inputs[:3], inputs[7]
    with torch.no_grad():
        _, mean, deviation, reserve = torch.ops.aten.cudnn_batch_norm(
            images, weight, weight, None, None, True, 0.1, epsilon
        )
    return [*inputs[:5], mean, deviation, epsilon, reserve]


def _input(torch: Any, side: dict[str, Any], i: int, argument: Any, device: str) -> Any:
    """The i-th input: a tensor as recorded, a number as written; ValueError where it does not fit the overload."""
    shape, dtype, kind = side["shapes"][i], side["dtypes"][i], str(argument.type)
    text = side["concrete"][i] if i < len(side["concrete"]) else ""
    if "Tensor" in kind:
        if dtype in DTYPES:
            return _tensor(torch, shape, side["strides"][i] if i < len(side["strides"]) else [], dtype, device)
        if "Optional" in kind and not dtype:
            return None
        raise ValueError(kind)
    if dtype in DTYPES:
        raise ValueError(kind)
    if not text:
        if "Optional" in kind or "Generator" in kind:
            return None
        if argument.has_default_value():
            return argument.default_value
        raise ValueError(kind)
    return _number(text, kind)


def _number(text: str, kind: str) -> Any:
    """A number, a truth or a list of them, as the profiler writes them."""
    words = text.replace("true", "True").replace("false", "False")
    value = {"None": None}.get(words, words)
    found = ast.literal_eval(value) if isinstance(value, str) and _plain(value) else value
    return [bool(each) for each in found] if "List[bool]" in kind and isinstance(found, list) else found


def _plain(text: str) -> bool:
    return text[:1] in "-0123456789[TF("


def _tensor(torch: Any, shape: list[int], strides: list[int], dtype: str, device: str) -> Any:
    """Random and small, so that nothing overflows; ones where it counts or says yes and no."""
    kind = of_torch(torch, dtype)
    if not shape:
        return torch.ones((), dtype=kind, device=device)
    strides = layout.affordable(shape, strides)
    flat = torch.ones(layout.span(shape, strides), dtype=kind, device=device)
    if kind.is_floating_point:
        flat.uniform_(0.1, 0.9)
    return flat.as_strided(shape, strides)
