"""A side's description becomes something that can be called: one op, or a part that is more than one (an update, an
attention, a head with its loss, a mask), which runs its own code, forward and backward, as the program or the remedy
would. Standard library and torch alone. Only ops that are named here are called, whatever a recording says, and the
forms of gobrrr's own table of idioms.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from math import prod
from typing import Any

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
        "op": op, "cast": cast, "optimizer": optimizer, "attention": attention, "loss": loss, "mask": mask,
        "fresh": fresh, "form": form, "together": together,
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
    for overload, inputs in _fitting(torch, side, device):
        arguments = overload._schema.arguments
        inputs = _with_what_forward_kept(torch, side["name"], inputs)
        named = {a.name: value for a, value in zip(arguments, inputs, strict=True) if a.kwarg_only}
        placed = [value for a, value in zip(arguments, inputs, strict=True) if not a.kwarg_only]

        def run(overload: Any = overload, placed: list[Any] = placed, named: dict[str, Any] = named) -> object:
            with torch.no_grad():
                return overload(*placed, **named)

        run()
        return run
    raise ValueError(f"no overload of {side['name']} takes what was recorded")


def _fitting(torch: Any, side: dict[str, Any], device: str) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the overloads that take what was recorded, each with inputs made for it."""
    packet = getattr(torch.ops.aten, side["name"].removeprefix("aten::"))
    for overload in (getattr(packet, name) for name in packet.overloads()):
        arguments = overload._schema.arguments
        if len(arguments) == len(side["shapes"]):
            with contextlib.suppress(ValueError, SyntaxError, IndexError):
                yield overload, [_input(torch, side, i, arg, device) for i, arg in enumerate(arguments)]


def form(torch: Any, side: dict[str, Any], device: str) -> Run:
    """One form of an idiom on the inputs of the op that shows it, with its backward where the line has one."""
    for overload, inputs in _fitting(torch, side, device):
        named = {argument.name: value for argument, value in zip(overload._schema.arguments, inputs, strict=True)}
        leaves = [each for each in inputs if isinstance(each, torch.Tensor) and each.is_floating_point()]
        for leaf in leaves:
            leaf.requires_grad_(side["backward"])
        code, known = compile(side["form"], "form", "eval"), {"torch": torch, "F": torch.nn.functional, **named}
        call = partial(eval, code, known)
        result = call()
        return _with_backward(torch, call, torch.ones_like(result), result.requires_grad, leaves)
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
    found = ast.literal_eval(value) if isinstance(value, str) and value[:1] in "-0123456789[TF(" else value
    return [bool(each) for each in found] if "List[bool]" in kind and isinstance(found, list) else found


def _tensor(torch: Any, shape: list[int], strides: list[int], dtype: str, device: str) -> Any:
    """Random and small, so that nothing overflows; ones where it counts or says yes and no."""
    kind = of_torch(torch, dtype)
    if not shape:
        return torch.ones((), dtype=kind, device=device)
    strides = affordable(shape, strides)
    flat = torch.ones(span(shape, strides), dtype=kind, device=device)
    if kind.is_floating_point:
        flat.uniform_(0.1, 0.9)
    return flat.as_strided(shape, strides)


KINDS = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "NAdam", "RAdam", "Adamax")
FRESH = 1024
"""Numbers of rows that a product of ever new ones goes through: oneDNN keeps as many kernels."""
OPTIONS = frozenset({"lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov", "amsgrad", "maximize",
                     "alpha", "centered", "rho", "lr_decay"})  # fmt: skip


def optimizer(torch: Any, side: dict[str, Any], device: str) -> Run:
    """torch.optim's own step over parameters of the recorded shapes, each with a gradient."""
    if side["kind"] not in KINDS:
        raise ValueError(f"{side['kind']} is not one of torch.optim's")
    dtype = getattr(torch, side.get("torch_dtype", "float32"))
    parameters = []
    for shape, count in side["tensors"]:
        for _ in range(count):
            parameter = torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device).uniform_(-0.1, 0.1))
            parameter.grad = torch.empty_like(parameter).uniform_(-1e-3, 1e-3)
            parameters.append(parameter)
    options = {name: value for name, value in side["options"].items() if name in OPTIONS}
    made = getattr(torch.optim, side["kind"])(parameters, **options, **side["how"])
    run: Run = made.step
    return run


def attention(torch: Any, side: dict[str, Any], device: str) -> Run:
    """softmax(q @ k.T * scale + mask) @ v by hand or fused, with its backward where the program trains."""
    *batch, queries, keys, size = side["dims"]
    dtype, scale, dropout = getattr(torch, side["torch_dtype"]), size**-0.5, side.get("dropout", 0.0)

    def tensor(length: int) -> Any:
        """A head's view into [.., length, heads, size], as projections leave it."""
        heads = batch[-1:]
        made = torch.empty((*batch[:-1], length, *heads, size), dtype=dtype, device=device).uniform_(-1, 1)
        return made.transpose(-3, -2) if len(batch) > 1 else made.reshape(*batch, length, size)

    q, k, v = (tensor(length).requires_grad_(side["backward"]) for length in (queries, keys, keys))
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(1)
    mask = torch.zeros(queries, keys, dtype=dtype, device=device).masked_fill(hidden, -1e4) if side["mask"] else None
    gradient, functional = tensor(queries), torch.nn.functional

    def by_hand() -> Any:
        scores = torch.matmul(q, k.transpose(-2, -1)) * scale
        weights = functional.softmax(scores if mask is None else scores + mask, dim=-1)
        return torch.matmul(functional.dropout(weights, dropout) if dropout else weights, v)

    def fused() -> Any:
        causal = bool(side.get("causal"))
        return functional.scaled_dot_product_attention(q, k, v, None if causal else mask, dropout, is_causal=causal)

    return _with_backward(torch, fused if side["fused"] else by_hand, gradient, side["backward"], [q, k, v])


def loss(torch: Any, side: dict[str, Any], device: str) -> Run:
    """The cross-entropy of a linear head, its logits as a whole or chunk by chunk."""
    rows, hidden, classes = side["dims"]
    dtype, functional = getattr(torch, side["torch_dtype"]), torch.nn.functional
    states = torch.empty(rows, hidden, dtype=dtype, device=device).uniform_(-1, 1).requires_grad_(side["backward"])
    weight = torch.empty(classes, hidden, dtype=dtype, device=device).uniform_(-0.1, 0.1)
    weight.requires_grad_(side["backward"])
    target = torch.arange(rows, device=device) % classes

    def whole() -> Any:
        return functional.cross_entropy(functional.linear(states, weight), target)

    def chunked() -> Any:
        return functional.linear_cross_entropy(states, weight, target, options=torch.nn.LinearCrossEntropyOptions())

    return _with_backward(torch, chunked if side["chunked"] else whole, None, side["backward"], [states, weight])


def mask(torch: Any, side: dict[str, Any], device: str) -> Run:
    """A dropout mask of so many elements, drawn by torch or four from each number (the remedy's own code). At a chance
    of a half torch takes twice as long as at nine in ten."""
    from gobrrr.remedies.layers.mask_bits import fill

    noise, keep = torch.empty(side["elements"], dtype=getattr(torch, side["torch_dtype"]), device=device), side["keep"]
    return (lambda: fill(noise, keep)) if side["packed"] else (lambda: noise.bernoulli_(keep))


def fresh(torch: Any, side: dict[str, Any], device: str) -> Run:
    """A product of so many rows and more, of another number each time: a library that makes a kernel for each shape
    makes one each time (oneDNN's bfloat16 5.6 ms where the product takes 0.2; one core of a Xeon with AMX)."""
    rows, inner, columns = side["dims"]
    dtype, numbers = getattr(torch, side["torch_dtype"]), cycle(range(rows, rows + FRESH))
    left = torch.ones(rows + FRESH, inner, dtype=dtype, device=device)
    right = torch.ones(inner, columns, dtype=dtype, device=device)
    return lambda: left[: next(numbers)] @ right


def together(torch: Any, side: dict[str, Any], device: str) -> Run:
    """Linear layers on one input, each by a product of its own or as one layer, with backward where it trains."""
    rows, inner, *outs = side["dims"]
    how = {"dtype": getattr(torch, side["torch_dtype"]), "device": device}
    layers = [torch.nn.Linear(inner, out, **how) for out in ([sum(outs)] if side["joined"] else outs)]
    x = torch.empty(rows, inner, **how).uniform_(-1, 1).requires_grad_(side["backward"])
    gradients = [torch.ones(rows, out, **how) for out in outs]
    leaves = [x, *(each for layer in layers for each in layer.parameters())]

    def forward() -> Any:
        return layers[0](x).split(outs, -1) if side["joined"] else [layer(x) for layer in layers]

    def both() -> object:
        for leaf in leaves:
            leaf.grad = None
        return torch.autograd.backward(forward(), gradients)

    def only() -> object:
        with torch.no_grad():
            return forward()

    return both if side["backward"] else only


def _with_backward(torch: Any, forward: Callable[[], Any], gradient: Any, backward: bool, leaves: list[Any]) -> Run:
    def both() -> object:
        for leaf in leaves:
            leaf.grad = None
        return forward().backward(gradient)

    def only() -> object:
        with torch.no_grad():
            return forward()

    return both if backward else only


SPARSE = 4
"""Largest span of a tensor that is made, in multiples of its elements: a head's part of a fused q, k, v takes every
third row, a gate's of an LSTM every fourth. Rows of a mapped file lie further apart, and are made next to each
other."""


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory from its first to its last, both included; dense where the strides are not known."""
    strides = _known(shape, strides)
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if 0 not in shape else 0


def affordable(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides, or where they span too much dense ones in their order; what is expanded (stride 0) stays so."""
    strides = _known(shape, strides)
    held = [size if step else 1 for size, step in zip(shape, strides, strict=True)]
    return list(strides) if span(shape, strides) <= SPARSE * prod(held) else _packed(held, strides)


def _known(shape: Sequence[int], strides: Sequence[int]) -> Sequence[int]:
    return strides if len(strides) == len(shape) else _packed(shape, range(len(shape), 0, -1))


def _packed(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Dense strides, the largest of `order` outermost; 0 stays 0."""
    strides, step = [0] * len(shape), 1
    for i in sorted(range(len(shape)), key=lambda i: (order[i], -i)):
        if order[i]:
            strides[i], step = step, step * max(1, shape[i])
    return strides


DTYPES = {
    "double": ("float64", 8), "float": ("float32", 4), "c10::BFloat16": ("bfloat16", 2), "c10::Half": ("float16", 2),
    "long int": ("int64", 8), "int": ("int32", 4), "bool": ("bool", 1),
    "signed char": ("int8", 1), "unsigned char": ("uint8", 1),
}  # fmt: skip


def of_torch(torch: Any, name: str) -> Any:
    """torch.float32 for 'float'."""
    return getattr(torch, DTYPES[name][0])
