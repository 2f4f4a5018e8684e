"""Edits of layers that are written by hand: attention, a loss over all logits at once, norms."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Change, Source

CASTS = frozenset({"to", "type_as", "float", "contiguous"})
"""Methods that change no value."""
SHAPES = frozenset({"view", "reshape", "flatten", "contiguous", "float"})
"""Methods between a head and its loss that leave the classes alone."""


def fused_attention(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put scaled_dot_product_attention in the place of products, softmax and dropout, where nothing else is computed
    of the scores."""
    products = [node for node in source.nodes(ast.BinOp, ast.Call) if _product(node) is not None]
    return source.with_helper("import torch", [change for node in products for change in _attention(source, node)])


def _attention(source: Source, last: ast.expr) -> list[Change]:
    chain, (weights, values) = Chain(source, last), _product(last) or (last, last)
    found, dropout = chain.value(weights), ""
    if isinstance(found, ast.Call) and "drop" in last_name(found.func).lower() and found.args:
        dropout, found = _chance(source, found), chain.value(found.args[0])
    if not isinstance(found, ast.Call) or (inside := _of_softmax(source, found)) is None:
        return []
    inner, dim = inside
    scores, mask, scale = chain.value(inner), "", ""
    while (product := _product(scores)) is None:
        below, more, factor = _peeled(source, scores) or (None, "", "")
        adds = isinstance(scores, ast.BinOp) and bool(more)
        if below is None or (more and mask) or (factor and scale) or (adds and scale):
            return []  # a scale outside of what is added counts for that too
        mask, scale, scores = mask or more, scale or factor, chain.value(below)
    query, turned = product
    keys = chain.value(turned)
    whole, dims = _before_turn(keys) or (None, ())
    if dim != "-1" and dim not in dims:
        return []
    key = source.code(whole) if whole is not None else f"{_factor(source, turned)}.transpose(-2, -1)"
    given = [source.code(query), key, source.code(values), *([f"attn_mask={mask}"] if mask else [])]
    given += [f"dropout_p={dropout}"] if dropout else []
    code = f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)}, scale={scale or '1.0'})"
    return [*map(source.without, chain.passed), source.replacing(last, code)] if chain.serves_only(weights) else []


class Chain:
    """Assignments of one block through which a value comes to an expression."""

    def __init__(self, source: Source, last: ast.expr) -> None:
        self._source, self.passed = source, list[ast.Assign]()
        self._statement = source.statement(last)
        blocks = [getattr(next(source.parents(self._statement)), name, []) for name in ("body", "orelse")]
        self._block = next((each for each in blocks if self._statement in each), [self._statement])
        self._above: list[ast.stmt] = self._block[: self._block.index(self._statement)]

    def value(self, node: ast.expr) -> ast.expr:
        """Return a node without casts: for a name, the expression that it was given last in the block."""
        while True:
            node = _uncast(node)
            name, above = ast.unparse(node), reversed(range(len(self._above)))
            at = next((n for n in above if _target(self._above[n]) == name), None)
            if at is None or not isinstance(given := self._above[at], ast.Assign):
                return node
            self.passed.append(given)
            self._above, node = self._above[:at], given.value

    def once(self, node: ast.expr, fits: Callable[[ast.expr], object]) -> ast.expr:
        """Return the expression that a name was given, once in the block, where it fits; or the node."""
        node = _uncast(node)
        given = [
            each for each in self._block[: self._block.index(self._statement)] if _target(each) == ast.unparse(node)
        ]
        if len(given) != 1 or not isinstance(given[0], ast.Assign) or not fits(value := _uncast(given[0].value)):
            return node
        if given[0] not in self.passed:
            self.passed.append(given[0])
        return value

    def serves_only(self, node: ast.expr) -> bool:
        """Whether what was passed is used nowhere but there, stands in lines of its own, and may as well be computed
        where it is used: nothing in between is more than a statement, or gives a name to something that it reads."""
        names = {_target(each) for each in self.passed}
        inside = {id(n) for each in (*self.passed, node) for n in ast.walk(each)}
        there = self._source.nodes(ast.Name, within=self._source.scope(self._statement))
        others = any(n.id in names and id(n) not in inside for n in there)
        alone = all(map(self._source.stands_alone, self.passed))
        return not others and alone and self._may_move()

    def _may_move(self) -> bool:
        """Whether between what was passed and its use there are plain statements alone, which change nothing that it
        reads."""
        read: set[str] = set()
        for each in self._block[: self._block.index(self._statement)]:
            if each in self.passed:
                read |= {n.id for n in ast.walk(each) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
                continue
            stored = {n.id for n in ast.walk(each) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
            if read and (stored & read or not isinstance(each, (ast.Assign, ast.AnnAssign, ast.Expr))):
                return False
        return True


def _uncast(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CASTS:
        node = node.func.value
    return node


def _target(node: ast.stmt) -> str:
    """The one name that a statement gives something to; empty for others."""
    (target, *more) = node.targets if isinstance(node, ast.Assign) else [node]
    return target.id if isinstance(target, ast.Name) and not more else ""


def _of_softmax(source: Source, call: ast.Call) -> tuple[ast.expr, str] | None:
    """Return what torch's softmax is computed of, and over which dimension: as a function, a method, or a module."""
    made = [each for each in source.names.values(call.func) if isinstance(each, ast.Call)]
    module = next((each for each in made if last_name(each.func) == "Softmax"), None)
    said = {each.arg: ast.unparse(each.value) for each in (module or call).keywords}
    if module is not None and len(made) == 1 and call.args:
        return call.args[0], said.get("dim", ast.unparse(module.args[0]) if module.args else "")
    if last_name(call.func) != "softmax":
        return None
    given = list(map(ast.unparse, call.args))
    if source.names.origin(call.func).startswith("torch."):
        return (call.args[0], said.get("dim", given[1] if len(given) > 1 else "")) if call.args else None
    is_method = isinstance(call.func, ast.Attribute) and len(given) + len(said) == 1
    return (call.func.value, said.get("dim", *given)) if is_method and isinstance(call.func, ast.Attribute) else None


def _product(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Both factors of a product of matrices."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("matmul", "bmm"):
        return None
    given = node.args if len(node.args) == 2 else [getattr(node.func, "value", node), *node.args]
    return (given[0], given[1]) if len(given) == 2 else None


def _before_turn(node: ast.expr) -> tuple[ast.expr, set[str]] | None:
    """Keys before their last two dimensions were exchanged, and these."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "transpose":
        return None
    dims = {ast.unparse(each) for each in node.args}
    return (node.func.value, dims) if dims in ({"-2", "-1"}, {"1", "2"}, {"2", "3"}) else None


HIDES = re.compile(r"float\(['\"]-inf['\"]\)|-\s*\w+\.inf|.*finfo\(.*\)\.min|-\s*(1e\d+|1e\+\d+|1\d{4,}(\.0)?)")
"""Values that leave nothing of a score behind a softmax."""


def _peeled(source: Source, node: ast.expr) -> tuple[ast.expr, str, str] | None:
    """Scores without their mask or their factor, and these: true where a key counts, or what is added; else none."""
    match node:
        case ast.BinOp(scores, ast.Add(), mask):
            return scores, source.code(mask), ""
        case ast.BinOp(scores, ast.Div(), factor):
            return scores, "", f"1 / {_factor(source, factor)}"
        case ast.BinOp(scores, ast.Mult(), factor):
            return scores, "", source.code(factor)
        case ast.Call(func, [mask, value]) if last_name(func) == "masked_fill" and HIDES.fullmatch(ast.unparse(value)):
            return getattr(func, "value", node), _inverse(source, mask), ""
        case ast.Call(func, [mask, scores, value]) if last_name(func) == "where" and HIDES.fullmatch(
            ast.unparse(value)
        ):
            return scores, source.code(mask), ""
    return None


def _inverse(source: Source, mask: ast.expr) -> str:
    match mask:
        case ast.Compare(left, [ast.Eq()], [right]):
            return f"{_factor(source, left)} != {_factor(source, right)}"
        case ast.UnaryOp(ast.Invert(), operand):
            return source.code(operand)
    return f"~{_factor(source, mask)}"


def _factor(source: Source, node: ast.expr) -> str:
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))
    return source.code(node) if plain else f"({source.code(node)})"


def _chance(source: Source, call: ast.Call) -> str:
    """The chance of a dropout, of a module or a function."""
    if not source.names.origin(call.func).startswith("torch."):
        module = source.code(call.func)
        return f"{module}.p if {module}.training else 0.0"
    given = {each.arg: _factor(source, each.value) for each in call.keywords}
    given |= {name: _factor(source, each) for name, each in zip(("input", "p", "training"), call.args, strict=False)}
    return f"{given.get('p', '0.5')} if {given.get('training', 'True')} else 0.0"


def chunked_loss(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put linear_cross_entropy in the place of a head and a cross-entropy of its logits, where a function computes both
    and nothing else of the logits."""
    found: list[Change] = []
    for loss in source.calls_from(("torch",), ("cross_entropy",)):
        chain = Chain(source, loss)
        logits, cut = _logits(source, chain, loss.args[0] if loss.args else loss)
        if not isinstance(logits, ast.Call) or len(logits.args) != 1 or len(loss.args) > 2:
            continue
        made = [each for each in source.names.values(logits.func) if isinstance(each, ast.Call)]
        is_linear = len(made) == 1 and source.names.is_from(made[0].func, ("torch",), ("Linear",))
        there = [(each.lineno, each.end_lineno or 0) for each in (*chain.passed, source.statement(loss))]
        pointed = not lines or any(begin <= line <= end for begin, end in there for line in lines)
        if is_linear and pointed and chain.serves_only(loss.args[0]):
            hidden, head = _factor(source, logits.args[0]), source.code(logits.func)
            rest = [*map(source.code, loss.args[1:]), *map(source.code, loss.keywords)]
            given = [f"{hidden}{cut}.flatten(0, -2)", f"{head}.weight", *rest, f"linear_bias={head}.bias"]
            options = "options=torch.nn.LinearCrossEntropyOptions()"
            code = f"torch.nn.functional.linear_cross_entropy({', '.join(given)}, {options})"
            found += [*map(source.without, chain.passed), source.replacing(loss, code)]
    return source.with_helper("import torch", found)


def _logits(source: Source, chain: Chain, given: ast.expr) -> tuple[ast.expr, str]:
    """Return the call that logits are, without what gives them other dimensions, and how they are cut before that: the
    classes are whole, as far as can be read."""
    node, cut = chain.value(given), ""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and last_name(node.func) in SHAPES):
        if isinstance(node, ast.Call):
            reshapes = last_name(node.func) in ("view", "reshape", "flatten")
            node = chain.value(getattr(node.func, "value", ast.Name(""))) if not (cut and reshapes) else ast.Name("")
            continue
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        *_, last = map(ast.unparse, parts)
        if cut or (last != ":" and (len(parts) > 2 or "..." in map(ast.unparse, parts))):
            return ast.Name(""), ""
        cut, node = f"[{source.code(node.slice)}]", chain.value(node.value)
    return node, cut


def fused_norm(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put layer_norm or rms_norm in the place of a mean, a variance and a quotient over the last dimension, where
    nothing else is computed of them."""
    found: list[Change] = []
    for node in source.nodes(ast.BinOp):
        pairs = [(node.left, node.right, "sqrt")] if isinstance(node.op, ast.Div) else []
        if isinstance(node.op, ast.Mult):
            pairs = [(node.left, node.right, "rsqrt"), (node.right, node.left, "rsqrt")]
        found += next(filter(None, (_norm(source, node, *pair) for pair in pairs)), [])
    return source.with_helper("import torch", found)


def _norm(source: Source, last: ast.BinOp, above: ast.expr, below: ast.expr, root: str) -> list[Change]:
    """The changes for one quotient: x / sqrt(mean(x^2) + eps), (x - mean) / sqrt(var + eps)."""
    chain, gain, times = Chain(source, last), "", ""
    inside = _under(chain.once(below, lambda node: _under(node, root)), root)
    if not isinstance(inside, ast.BinOp) or not isinstance(inside.op, ast.Add):
        return []
    spread = chain.once(inside.left, lambda node: _moment(source, node))
    if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult):  # gain * (x - mean) / ...
        gain = source.code(above.left) if _is_vector(source, above.left) else ""
        times, above = "" if gain else f"{_factor(source, above.left)} * ", above.right
    top = chain.once(above, _is_difference)
    kind, of, rest = _moment(source, spread) or ("", spread, {})
    if kind == "mean":
        squared = _squared(source, of)
        of = chain.once(squared, _is_difference) if squared is not None else of
        if squared is None or not (_same(of, top) or _same(squared, above)):
            return []
    elif rest not in ({"unbiased": "False"}, {"correction": "0"}) or not _is_difference(top):
        return []
    x, name, more = top, "rms_norm", ""
    if isinstance(top, ast.BinOp):
        x, name = top.left, "layer_norm"
        mean = _moment(source, chain.once(top.right, lambda node: _moment(source, node)))
        if mean is None or mean[0] != "mean" or not _same(mean[1], x) or not (kind == "mean" or _same(of, x)):
            return []
    if not isinstance(x, (ast.Name, ast.Attribute)) or not chain.serves_only(last):
        return []
    whole: ast.expr = last
    if not (gain or times):
        gain, whole = _scaled(source, last, ast.Mult)
    if name == "layer_norm":
        shift, whole = _scaled(source, whole, ast.Add) if gain else ("", whole)
        more = f"{shift or None}, "
    read = source.code(x)
    code = f"torch.nn.functional.{name}({read}, {read}.shape[-1:], {gain or None}, {more}{source.code(inside.right)})"
    return [*map(source.without, chain.passed), source.replacing(whole, f"{times}{code}")]


def _scaled(source: Source, node: ast.expr, kind: type[ast.operator]) -> tuple[str, ast.expr]:
    """Return the vector that a norm's result is multiplied by, or that is added, and the whole; nothing, and the node,
    where it is none."""
    outer = next(source.parents(node))
    if isinstance(outer, ast.BinOp) and isinstance(outer.op, kind):
        other = outer.right if outer.left is node else outer.left
        if _is_vector(source, other):
            return source.code(other), outer
    return "", node


def _is_vector(source: Source, node: ast.expr) -> bool:
    """Whether it is a parameter that was made of one dimension: nn.Parameter(torch.ones(width))."""
    made = [each for each in source.names.values(node) if isinstance(each, ast.Call)]
    inner = made[0].args[0] if len(made) == 1 and last_name(made[0].func) == "Parameter" and made[0].args else None
    if not isinstance(node, ast.Attribute) or not isinstance(inner, ast.Call) or len(inner.args) != 1:
        return False
    is_one = not isinstance(inner.args[0], (ast.Tuple, ast.List, ast.Starred, ast.Subscript))
    return is_one and last_name(inner.func) in ("ones", "zeros")


def _under(node: ast.expr, root: str) -> ast.expr | None:
    """Return what a root is of: torch.sqrt(v), v.sqrt(), v ** 0.5; rsqrt likewise."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return node.left if ast.unparse(node.right) == {"sqrt": "0.5", "rsqrt": "-0.5"}[root] else None
    if not isinstance(node, ast.Call) or last_name(node.func) != root:
        return None
    return node.args[0] if node.args else getattr(node.func, "value", None)


def _moment(source: Source, node: ast.expr) -> tuple[str, ast.expr, dict[str, str]] | None:
    """Return mean or var over the last dimension, what it is of, and what else it is given."""
    if not isinstance(node, ast.Call) or (kind := last_name(node.func)) not in ("mean", "var"):
        return None
    given, of = list(node.args), getattr(node.func, "value", None)
    if source.names.origin(node.func).startswith("torch."):
        of = given.pop(0) if given else None
    said = {each.arg or "": ast.unparse(each.value) for each in node.keywords}
    said |= dict(zip(("dim", "keepdim"), map(ast.unparse, given), strict=False))
    if of is None or said.pop("dim", "") not in ("-1", "(-1,)", "[-1]") or said.pop("keepdim", "") != "True":
        return None
    return kind, _uncast(of), said


def _squared(source: Source, node: ast.expr) -> ast.expr | None:
    """Return what is squared: x.pow(2), x ** 2, x.square(), x * x."""
    match node:
        case ast.BinOp(left, ast.Pow(), ast.Constant(2)):
            return _uncast(left)
        case ast.BinOp(left, ast.Mult(), right) if _same(left, right):
            return _uncast(left)
        case ast.Call(func, args) if last_name(func) in ("pow", "square"):
            given = [*([] if source.names.origin(func).startswith("torch.") else [getattr(func, "value", func)]), *args]
            if list(map(ast.unparse, given[1:])) == (["2"] if last_name(func) == "pow" else []):
                return _uncast(given[0])
    return None


def _is_difference(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.unparse(_uncast(one)) == ast.unparse(_uncast(other))
