"""BRR119: several linear layers that take the same input, each by a product of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import costliest_line, grouped, inside, product_dims, total
from gobrrr.rules.model.views import hot
from gobrrr.units import duration, share

LINEAR = "aten::linear"
OPS = 4
"""Ops of a call that are dispatched: the layer's, two views of its weight, and the product."""
MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Expressions whose parts may run never, or many times."""


Called = tuple[ast.stmt, ast.Call | ast.ListComp]
"""A call, or a list with a call of each layer of a ModuleList; in front of it the statement that makes it."""


class Beside(NamedTuple):
    """Layers of one place that take the same input, and their products of one number of rows."""

    layers: int
    products: tuple[OpGroup, ...]
    everything: tuple[OpGroup, ...]
    """The products, with what else runs inside the layers' calls."""

    @property
    def spared(self) -> float:
        """Return the share of the calls that one product makes needless."""
        return 1 - 1 / self.layers

    def calling(self, dispatch: float, backward: bool) -> float:
        """Return the ns per step of needless calls: each product has two more in backward."""
        calls = sum(op.calls for op in self.products)
        return self.spared * (
            min(total(self.everything), calls * OPS * dispatch) + 2 * calls * OPS * dispatch * backward
        )


@rule("BRR119", "compute", needs={"ops", "shapes", "stacks"}, remedies=("products_together",))
def products_side_by_side(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Queries, keys and values, or gates, of the same input: small products whose calls cost more than they do."""
    found, trains = beside(ledger), any(op.phase == "backward" for op in hot(ledger))
    expected = sum(each.calling(machine.dispatch.median, trains) for each in found)
    if not worth_telling(ledger, expected):
        return
    ops = [op for each in found for op in each.everything]
    most = sum((3 if trains else 1) * each.spared * total(each.everything) for each in found)
    spent, calls = total(ops), sum(op.calls for each in found for op in each.products)
    yield Cause(
        saving=(0.3 * expected, expected, most),
        message=f"{calls:.0f} products of linear layers that take the same input cost {duration(spent)} per step "
        f"({share(spent / ledger.wall)}), each with a call of its own",
        advice="Make one Linear of all outputs and split what it gives; in inference concatenate the weights once.",
        where=costliest_line(ops),
        evidence={"time": time(spent), "products": count(calls), "layers": count(max(each.layers for each in found))},
        of=ops,
    )


def beside(ledger: Ledger) -> list[Beside]:
    """Return the places whose source calls layers of the same input, with the products that ran there."""
    within = (op for op in hot(ledger) if op.where and op.phase not in ("backward", "data"))
    by_file = grouped((op for op in within if inside(op, LINEAR) or op.name == LINEAR), lambda op: op.where[0].file)
    found = list[Beside]()
    for file, ops in by_file.items():
        written = [each for each in ledger.statements if each.span.file == file]
        for calls in _calls(written[0].module) if written else ():
            texts = {ast.unparse(statement) for statement, _ in calls}  # lines of `module` are not the file's own
            places = {each.span.line for each in written if each.text in texts}
            there = [op for op in ops if op.where[0].line in places]
            products = [op for op in there if product_dims(op)]
            sizes = grouped(products, lambda op: (product_dims(op) or ())[:2]).values()
            same = max(sizes, key=total, default=[])
            found += [Beside(max(2, len(calls)), tuple(same), tuple(there))] if same else []  # a list: two at least
            ops = [op for op in ops if op not in there]  # another class may have the same lines
    return found


@lru_cache(32)
def _calls(text: str) -> list[list[Called]]:
    try:
        return of_one_input(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return []


def of_one_input(tree: ast.AST) -> list[list[Called]]:
    """Return the calls of different nn.Linear on one name, those together that run one after the other in a block in
    which nothing changes what the name stands for; each list of a ModuleList's calls is a group of its own."""
    linears, found = _linears(tree), list[list[Called]]()
    for block in _blocks(tree):
        open_: dict[str, list[Called]] = {}
        for statement in block:
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)):
                for node in _surely_called(statement):
                    call = node.elt if isinstance(node, ast.ListComp) else node
                    given = call.args[0] if isinstance(call, ast.Call) and len(call.args) == 1 else None
                    if not isinstance(given, ast.Name) or _may_change(statement.value, given.id):
                        continue
                    if isinstance(node, ast.ListComp):
                        found += [[(statement, node)]] if _each_of(node) in linears else []
                    elif not node.keywords and ast.unparse(node.func) in linears:
                        open_.setdefault(given.id, []).append((statement, node))
            for name in [name for name in open_ if _may_change(statement, name)]:
                found.append(open_.pop(name))
        found += open_.values()
    distinct = [{ast.unparse(each.func) for _, each in calls if isinstance(each, ast.Call)} for calls in found]
    return [calls for calls, names in zip(found, distinct, strict=True) if not names or len(calls) == len(names) > 1]


def _each_of(made: ast.ListComp) -> str:
    """Return `heads[]` of `[each(x) for each in heads]`; an empty text of another list."""
    (first, *more), call = made.generators, made.elt
    if more or first.ifs or not isinstance(call, ast.Call) or call.keywords:
        return ""
    return f"{ast.unparse(first.iter)}[]" if ast.unparse(call.func) == ast.unparse(first.target) else ""


def _linears(tree: ast.AST) -> set[str]:
    """Return the names that are given an nn.Linear wherever the file gives them something; `name[]` is a ModuleList."""
    kinds: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            value = node.value if isinstance(node, ast.Assign) else target
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            values = (
                value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(parts) else [value] * len(parts)
            )
            for part, given in zip(parts, values, strict=True):
                made = given.elt if isinstance(given, (ast.GeneratorExp, ast.ListComp)) and len(parts) > 1 else given
                name, each = ast.unparse(part), [made]
                if isinstance(made, ast.Call) and made.args and _called(made) == "ModuleList":
                    items = made.args[0]
                    name += "[]"
                    each = items.elts if isinstance(items, (ast.List, ast.Tuple)) else [getattr(items, "elt", items)]
                kinds.setdefault(name, set()).update(map(_called, each))
    return {name for name, made in kinds.items() if made == {"Linear"}}


def _called(node: ast.AST) -> str:
    """Return the last name of what a call calls; an empty text of anything else."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _surely_called(node: ast.AST) -> Iterator[ast.Call | ast.ListComp]:
    """Yield the calls that a statement makes once each, whatever its values, and its list comprehensions."""
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ListComp):
            yield child
        if not isinstance(child, MAYBE):
            yield from _surely_called(child)


def _may_change(statement: ast.AST | None, name: str) -> bool:
    """Whether it gives the name, or a part of it, something, or calls a method that works in place."""
    for node in ast.walk(statement) if statement is not None else ():
        stored = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
        if stored and any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node)):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            return True
    return False
