"""Small faults to put into a source file: what its syntax tree offers, one change each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
"""Of an order its bound moved by one, and its opposite."""
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


class Mutant(NamedTuple):
    """A change of one file: the bytes from `start` to `end` become `new`."""

    file: str
    line: int
    start: int
    end: int
    new: str
    before: str
    """The lines concerned, without indentation; `after`: once changed."""
    after: str

    def of(self, data: bytes) -> bytes | None:
        """The whole file, changed; nothing where that is no Python (a name assigned by := may not stand everywhere)."""
        whole = data[: self.start] + self.new.encode() + data[self.end :]
        try:
            compile(whole, self.file, "exec")
        except SyntaxError:
            return None
        return whole


def mutants(file: str, data: bytes) -> Iterator[Mutant]:
    """All of a file, in the order of its syntax tree."""
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _nodes(ast.parse(data)):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        start, end = starts[first] + node.col_offset, starts[last - 1] + (node.end_col_offset or 0)
        for changed in _changed(node):
            words = ast.unparse(changed)
            new = f"({words})" if isinstance(changed, ast.expr) and not isinstance(changed, ast.Constant) else words
            shown = (
                data[starts[first] : starts[last]],
                data[starts[first] : start] + new.encode() + data[end : starts[last]],
            )
            before, after = (" ".join(part.decode().split()) for part in shown)
            yield Mutant(file, node.lineno, start, end, new, before, after)


def _nodes(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What runs: no annotations, no words of errors and reports, nothing that only a type checker reads."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or (
            name == "keywords" and isinstance(tree, ast.ClassDef)
        ):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(
                node, (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom)
            ):
                continue
            if isinstance(node, ast.keyword) and ast.unparse(node) == "strict=True":  # an assertion: nothing to find
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, (ast.expr, ast.stmt)):
                yield node
            yield from _nodes(node)


def _changed(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """Other nodes that could stand in its place."""
    match node:
        case ast.Compare(ops=[op]):
            yield from (_with(node, ops=[other()]) for other in COMPARED[type(op)])
        case ast.BinOp() if type(node.op) in COMPUTED and not _is_text(node):
            yield _with(node, op=COMPUTED[type(node.op)]())
        case ast.BoolOp():
            yield _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
            for left_out in range(len(node.values)):
                rest = node.values[:left_out] + node.values[left_out + 1 :]
                yield rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1 if isinstance(node.value, int) else 1.5 * node.value or 1.0)
        case ast.IfExp() | ast.If() | ast.While() if not isinstance(node.test, (ast.Compare, ast.BoolOp)):
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED:
            yield _with(node, func=ast.Name(SWAPPED[name]))
        case ast.Call(func=ast.Attribute(attr=name)) if name in SWAPPED:
            yield _with(node, func=_with(node.func, attr=SWAPPED[name]))
        case ast.Tuple(ctx=ast.Load()) | ast.Set() if node.elts and all(isinstance(e, ast.Constant) for e in node.elts):
            yield _with(node, elts=node.elts[:-1]) if len(node.elts) > 1 else ast.Tuple([], ast.Load())
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
               for n in ast.walk(node))  # fmt: skip


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
