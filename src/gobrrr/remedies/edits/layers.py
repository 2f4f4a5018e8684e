"""Edits of layers that are written by hand: attention as products and softmax, a loss over all logits at once."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gobrrr.remedies.edits.source import Change, Source, last_name

CASTS = frozenset({"to", "type_as", "float", "contiguous"})
"""Methods that change no value."""
SHAPES = frozenset({"view", "reshape", "flatten", "contiguous", "float"})
"""Methods between a head and its loss that leave the classes alone."""


def fused_attention(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put scaled_dot_product_attention in the place of products, softmax and dropout, where nothing else is computed
    of the scores."""
    products = [node for node in source.nodes(ast.BinOp, ast.Call) if _product(node) is not None]
    found = [change for node in products for change in _attention(source, node)]
    helper = source.helper("import torch")
    return [*helper, *found] if helper is not None and found else []


def _attention(source: Source, last: ast.expr) -> list[Change]:
    chain, (weights, values) = Chain(source, last), _product(last) or (last, last)
    found, dropout = chain.value(weights), ""
    if isinstance(found, ast.Call) and "drop" in last_name(found.func).lower() and found.args:
        dropout, found = _chance(source, found), chain.value(found.args[0])
    if not isinstance(found, ast.Call) or last_name(found.func) != "softmax":
        return []
    given_first = bool(found.args) and not isinstance(found.args[0], (ast.Constant, ast.UnaryOp))
    scores = chain.value(found.args[0] if given_first else getattr(found.func, "value", found))
    mask = scale = ""
    while (product := _product(scores)) is None:
        inner, more, factor = _masked(source, scores) or _scaled(source, scores) or (None, "", "")
        if inner is None or (more and mask) or (factor and scale):
            return []
        mask, scale, scores = mask or more, scale or factor, chain.value(inner)
    query, turned = product
    keys = chain.value(turned)
    whole = _before_turn(keys)
    key = source.code(whole) if whole is not None else f"{source.code(turned)}.transpose(-2, -1)"
    given = [source.code(query), key, source.code(values), *([f"attn_mask={mask}"] if mask else [])]
    given += [f"dropout_p={dropout}"] if dropout else []
    code = f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)}, scale={scale or '1.0'})"
    return [*map(source.without, chain.passed), source.replacing(last, code)] if chain.serves_only(weights) else []


class Chain:
    """Assignments of one block through which a value comes to an expression."""

    def __init__(self, source: Source, last: ast.expr) -> None:
        self._source, self.passed = source, list[ast.Assign]()
        statement = source.statement(last)
        blocks = [getattr(next(source.parents(statement)), name, []) for name in ("body", "orelse")]
        block = next((each for each in blocks if statement in each), [statement])
        self._above: list[ast.stmt] = block[: block.index(statement)]

    def value(self, node: ast.expr) -> ast.expr:
        """Return a node without casts: for a name, the expression that it was given last in the block."""
        while True:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CASTS:
                node = node.func.value
                continue
            name, above = ast.unparse(node), reversed(range(len(self._above)))
            at = next((n for n in above if _target(self._above[n]) == name), None)
            if at is None or not isinstance(given := self._above[at], ast.Assign):
                return node
            self.passed.append(given)
            self._above, node = self._above[:at], given.value

    def serves_only(self, node: ast.expr) -> bool:
        """Whether what was passed is used nowhere else, and stands in lines of its own."""
        names = {_target(each) for each in self.passed}
        inside = {id(n) for each in (*self.passed, node) for n in ast.walk(each)}
        there = [n for n in self._source.nodes(ast.Name, within=self._source.scope(node)) if n.id in names]
        used = any(isinstance(n.ctx, ast.Load) and id(n) not in inside for n in there)
        return not used and all(map(self._source.stands_alone, self.passed))


def _target(node: ast.stmt) -> str:
    """The one name that a statement gives something to; empty for others."""
    (target, *more) = node.targets if isinstance(node, ast.Assign) else [node]
    return target.id if isinstance(target, ast.Name) and not more else ""


def _product(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Both factors of a product of matrices."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("matmul", "bmm"):
        return None
    given = node.args if len(node.args) == 2 else [getattr(node.func, "value", node), *node.args]
    return (given[0], given[1]) if len(given) == 2 else None


def _before_turn(node: ast.expr) -> ast.expr | None:
    """Keys before their last two dimensions were exchanged."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "transpose":
        return None
    exchanged = {ast.unparse(each) for each in node.args} in ({"-2", "-1"}, {"1", "2"}, {"2", "3"})
    return node.func.value if exchanged else None


def _masked(source: Source, node: ast.expr) -> tuple[ast.expr, str, str] | None:
    """Scores without a mask, and the mask as attention takes it: true where a key counts, or what is added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return node.left, source.code(node.right), ""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.Call) and name == "masked_fill" and len(node.args) == 2:
        mask, owner = node.args[0], getattr(node.func, "value", node)
        if isinstance(mask, ast.Compare) and len(mask.ops) == 1 and isinstance(mask.ops[0], ast.Eq):
            return owner, f"{source.code(mask.left)} != {source.code(mask.comparators[0])}", ""
        if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
            return owner, source.code(mask.operand), ""
        return owner, f"~{_factor(source, mask)}", ""
    if isinstance(node, ast.Call) and name == "where" and len(node.args) == 3:
        return node.args[1], source.code(node.args[0]), ""
    return None


def _scaled(source: Source, node: ast.expr) -> tuple[ast.expr, str, str] | None:
    """Scores without their factor, and the factor."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.left, "", f"1 / {_factor(source, node.right)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return node.left, "", source.code(node.right)
    return None


def _factor(source: Source, node: ast.expr) -> str:
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))
    return source.code(node) if plain else f"({source.code(node)})"


def _chance(source: Source, call: ast.Call) -> str:
    """The chance of a dropout, of a module or a function."""
    if not source.names.origin(call.func).startswith("torch."):
        module = source.code(call.func)
        return f"{module}.p if {module}.training else 0.0"
    given = {each.arg: source.code(each.value) for each in call.keywords}
    given |= dict(zip(("input", "p", "training"), map(source.code, call.args), strict=False))
    return f"{given.get('p', '0.5')} if {given.get('training', 'True')} else 0.0"


def chunked_loss(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put linear_cross_entropy in the place of a head and a cross-entropy of its logits, where a function computes both
    and nothing else of the logits."""
    helper = source.helper("import torch")
    found: list[Change] = []
    for loss in source.calls_from(("torch",), ("cross_entropy",)):
        chain = Chain(source, loss)
        logits, cut = _logits(source, chain, loss.args[0] if loss.args else loss)
        if not isinstance(logits, ast.Call) or len(logits.args) != 1:
            continue
        made = [last_name(each.func) for each in source.names.values(logits.func) if isinstance(each, ast.Call)]
        there = [(each.lineno, each.end_lineno or 0) for each in (*chain.passed, source.statement(loss))]
        pointed = not lines or any(begin <= line <= end for begin, end in there for line in lines)
        if made == ["Linear"] and pointed and chain.serves_only(loss):
            hidden, head = source.code(logits.args[0]), source.code(logits.func)
            rest = [*map(source.code, loss.args[1:]), *map(source.code, loss.keywords)]
            given = [f"{hidden}{cut}.flatten(0, -2)", f"{head}.weight", *rest, f"linear_bias={head}.bias"]
            options = "options=torch.nn.LinearCrossEntropyOptions()"
            code = f"torch.nn.functional.linear_cross_entropy({', '.join(given)}, {options})"
            found += [*map(source.without, chain.passed), source.replacing(loss, code)]
    return [*helper, *found] if helper is not None and found else []


def _logits(source: Source, chain: Chain, given: ast.expr) -> tuple[ast.expr, str]:
    """Return the call that logits are, without what gives them other dimensions, and how they are cut."""
    node, cut = chain.value(given), ""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and last_name(node.func) in SHAPES):
        cut = f"[{source.code(node.slice)}]{cut}" if isinstance(node, ast.Subscript) else cut
        inner = node.value if isinstance(node, ast.Subscript) else getattr(node.func, "value", ast.Name(""))
        node = chain.value(inner)
    return node, cut
