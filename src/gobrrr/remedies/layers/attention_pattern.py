"""Attention written out by hand, found in a graph of torch calls and replaced by scaled_dot_product_attention.

    softmax([scale] (q @ kT) [masked], -1) [dropout] @ v

The scale must be a number and stand before an added mask. A boolean mask filled with -inf stays boolean; one filled
with a large negative number becomes an added mask, since it makes a mean of rows in which all is masked. Only a mask
made of constants in the graph is recognised as causal; any other is handed on as it is. What does not fit is left
alone.
"""

from __future__ import annotations

import inspect
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

VERY_NEGATIVE = -1e4
"""Filled in where attention must not look: half precision has no smaller round number (transformers: finfo.min)."""
MAX_CONSTANT = 1 << 24
"""Elements of a constant mask that is worth computing to see whether it is causal."""
MATMUL = {torch.matmul, torch.bmm, operator.matmul, "matmul", "bmm", "__matmul__"}
SOFTMAX = {torch.softmax, torch.nn.functional.softmax, "softmax"}
DIVIDE = {operator.truediv, operator.itruediv, torch.div, "div", "div_"}
MULTIPLY = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
FILL = {torch.masked_fill, "masked_fill", "masked_fill_"}
ADD = {operator.add, torch.add, operator.iadd, "add"}
DROPOUT = {inspect.unwrap(torch.nn.functional.dropout)}  # this module may be imported in a watched run
CONSTANT = {
    "ones", "zeros", "full", "arange", "tril", "triu", "tril_", "triu_", "eq", "ne", "lt", "gt", "le", "ge", "bool",
    "to", "logical_not", "invert", "unsqueeze", "view", "reshape", "getitem", "ones_like", "zeros_like", "expand",
    "type",
}  # fmt: skip


@dataclass
class Attention:
    """Parts of the pattern. `mask`: (condition, value filled in where it holds), or (tensor added, None)."""

    query: Node
    key: Node
    value: Node
    scale: float
    mask: tuple[Node, float | None] | None
    dropout: float
    last: Node


def replace(module: GraphModule) -> int:
    """Replace every attention in the graph; returns how many there were."""
    graph = module.graph
    found = [each for node in list(graph.nodes) if _is(node, SOFTMAX) and (each := _attention(node))]
    for each in found:
        with graph.inserting_before(each.last):
            fused = _fused(graph, each)
        fused.meta.update(each.last.meta)
        each.last.replace_all_uses_with(fused)
        _erase(graph, each.last)
    if found:
        module.recompile()
    return len(found)


def _erase(graph: Graph, node: Any) -> None:
    """Take out what nobody uses now, inputs first asked last. Not graph.eliminate_dead_code(): writes in place whose
    result is unused are dead to it."""
    removable = MATMUL | SOFTMAX | DIVIDE | MULTIPLY | ADD | FILL | DROPOUT
    if _is_call(node) and not node.users and (_name(node) in CONSTANT or _is(node, removable)):
        inputs = node.all_input_nodes
        graph.erase_node(node)
        for each in inputs:
            _erase(graph, each)


def _is_call(node: Any) -> bool:
    return getattr(node, "op", "") in ("call_function", "call_method")


def _is(node: Any, targets: set[Any]) -> bool:
    return _is_call(node) and node.target in targets


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _argument(node: Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _attention(softmax: Node) -> Attention | None:
    """The attention around a softmax, if all of it fits."""
    dim = _argument(softmax, 1, "dim")
    shape = _shape(softmax)
    if shape is None or dim not in (-1, len(shape) - 1) or softmax.kwargs.get("dtype") is not None:
        return None
    last, dropout = _dropout(softmax)
    product = _only_user(last)
    if dropout is None or product is None or not _is(product, MATMUL) or product.args[0] is not last:
        return None
    before = _scores(softmax.args[0])
    if before is None:
        return None
    query, key, value = (*before[0].args[:2], product.args[1])
    dims = [_shape(node) for node in (query, key, value)]
    if any(d is None or len(d) not in (3, 4) or d[:-2] != shape[:-2] for d in dims):
        return None  # heads that are shared by broadcasting, or a mask that makes more of them
    return Attention(query, key, value, *before[1:], dropout, product)  # type: ignore[arg-type]


def _dropout(softmax: Node) -> tuple[Node, float | None]:
    """The dropout behind it, or itself, and the rate that holds; no rate where it is not known."""
    after = _only_user(softmax)
    if after is None or not _is(after, DROPOUT) or after.args[:1] != (softmax,):
        return softmax, 0.0
    rate, training = _argument(after, 1, "p", 0.5), _argument(after, 2, "training", True)
    known = isinstance(rate, (int, float)) and isinstance(training, bool) and not _argument(after, 3, "inplace", False)
    return after, (float(rate) if training else 0.0) if known else None


def _scores(node: Any) -> tuple[Node, float, tuple[Node, float | None] | None] | None:
    """Follow softmax's input back to the product; return the product, the scale and the mask."""
    scale, mask = 1.0, None
    while not _is(node, MATMUL):
        if not _is_call(node) or len(node.users) != 1 or not node.args:
            return None
        number = _argument(node, 1, "other")
        if _is(node, DIVIDE | MULTIPLY) and isinstance(number, (int, float)) and number > 0:
            scale *= 1.0 / number if _is(node, DIVIDE) else number
            node = node.args[0]
        elif mask is None and (inner := _masked(node)) is not None:
            node, (where, value) = inner
            if value is None and scale != 1.0:
                return None  # what was added is scaled too
            mask = where, None if value is None else value * scale
        else:
            return None
    return (node, scale, mask) if len(node.users) == 1 else None


def _masked(node: Any) -> tuple[Any, tuple[Any, float | None]] | None:
    """Return the scores that are masked, and the mask."""
    if _is(node, FILL):
        value = _argument(node, 2, "value")
        if isinstance(value, (int, float)) and value <= VERY_NEGATIVE:
            return node.args[0], (_argument(node, 1, "mask"), float(value))
    if _is(node, ADD) and len(node.args) == 2 and not node.kwargs.get("alpha"):
        first, second = node.args
        for scores, added in ((first, second), (second, first)):
            if _leads_to_product(scores) and hasattr(added, "op") and not _leads_to_product(added):
                return scores, (added, None)
    return None


def _leads_to_product(node: Any) -> bool:
    while _is_call(node):
        if _is(node, MATMUL):
            return True
        if not _is(node, DIVIDE | MULTIPLY | FILL) or not node.args:
            return False
        node = node.args[0]
    return False


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _shape(node: Any) -> Any:
    example = getattr(node, "meta", {}).get("example_value")
    return tuple(example.shape) if isinstance(example, torch.Tensor) else None


def _fused(graph: Graph, each: Attention) -> Node:
    """The call that takes the pattern's place."""
    single = len(_shape(each.query)) == 3  # the kernels want heads
    query, value = each.query, each.value
    key = graph.call_method("transpose", (each.key, -2, -1))
    if single:
        query, key, value = (graph.call_method("unsqueeze", (node, 1)) for node in (query, key, value))
    mask, causal = None, False
    if each.mask is not None:
        mask, causal = _mask(graph, each, single)
    fused = graph.call_function(
        torch.nn.functional.scaled_dot_product_attention, (query, key, value),
        {"attn_mask": mask, "dropout_p": each.dropout, "is_causal": causal, "scale": each.scale},
    )  # fmt: skip
    return graph.call_method("squeeze", (fused, 1)) if single else fused


def _mask(graph: Graph, each: Attention, single: bool) -> tuple[Node | None, bool]:
    """The mask argument of the fused call, and whether it is causal instead."""
    assert each.mask is not None
    given, filled = each.mask
    if filled is None:
        mask = given
    elif _is_causal(given):
        return None, True
    elif filled == float("-inf"):
        mask = graph.call_function(torch.logical_not, (given,))
    else:
        dtype = each.query.meta["example_value"].dtype
        zeros = graph.call_function(torch.zeros_like, (given,), {"dtype": dtype})
        mask = graph.call_method("masked_fill", (zeros, given, torch.finfo(dtype).min))  # so small that scores vanish
    if single and len(_shape(given) or ()) == 3:
        mask = graph.call_method("unsqueeze", (mask, 1))
    return mask, False


def _is_causal(condition: Node) -> bool:
    """Whether the condition is made of constants alone and holds above the diagonal, and only there."""
    shape = _shape(condition)
    if shape is None or len(shape) < 2 or not all(isinstance(n, int) for n in shape) or shape[-1] != shape[-2]:
        return False
    if torch.Size(shape).numel() > MAX_CONSTANT or torch.Size(shape[:-2]).numel() != 1:
        return False
    computed = _constant(condition, {})
    if computed is None:
        return False
    above = torch.ones(shape[-2:], dtype=torch.bool, device=computed.device).triu(1)
    return torch.equal(computed.reshape(above.shape).bool(), above)


def _constant(node: Any, known: dict[Any, Any]) -> Any:
    """The value of a node that depends on no input of the graph, or None."""
    if not hasattr(node, "op"):
        return node
    if node in known:
        return known[node]
    name = _name(node)
    if not _is_call(node) or name not in CONSTANT:
        return None
    values = [_constant(each, known) for each in node.args]
    if any(value is None and hasattr(each, "op") for value, each in zip(values, node.args, strict=True)):
        return None
    if any(hasattr(each, "op") for each in node.kwargs.values()):
        return None
    called = node.target if node.op == "call_function" else getattr(values.pop(0), name)
    try:
        known[node] = called(*values, **node.kwargs)
    except (TypeError, RuntimeError):  # a size that is only known when the graph runs
        return None
    return known[node]
