"""Parts that are more than one op: an optimizer's update, an attention, a head with its loss, a mask. Standard library
and torch alone; each runs its own code, forward and backward, as the program or the remedy would."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

Run = Callable[[], object]
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
    """The cross-entropy of a linear head, its logits as a whole or chunk by chunk (the remedy's own code)."""
    rows, hidden, classes = side["dims"]
    dtype, functional = getattr(torch, side["torch_dtype"]), torch.nn.functional
    states = torch.empty(rows, hidden, dtype=dtype, device=device).uniform_(-1, 1).requires_grad_(side["backward"])
    weight = torch.empty(classes, hidden, dtype=dtype, device=device).uniform_(-0.1, 0.1)
    weight.requires_grad_(side["backward"])
    target = torch.arange(rows, device=device) % classes

    def whole() -> Any:
        return functional.cross_entropy(functional.linear(states, weight), target)

    def chunked() -> Any:
        from gobrrr.remedies.layers.lazy_logits import LazyLogits

        return functional.cross_entropy(LazyLogits.of(states, weight, None, lambda: None), target)

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


def _with_backward(torch: Any, forward: Callable[[], Any], gradient: Any, backward: bool, leaves: list[Any]) -> Run:
    def both() -> object:
        for leaf in leaves:
            leaf.grad = None
        return forward().backward(gradient)

    def only() -> object:
        with torch.no_grad():
            return forward()

    return both if backward else only
