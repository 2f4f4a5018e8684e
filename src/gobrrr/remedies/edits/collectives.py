"""Edit of what goes around the ranks: many tensors summed as one."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from gobrrr.remedies.edits.source import Change, Source, names_in, stored_in

TOGETHER = '''\
@torch.no_grad()
def all_reduce_together(tensors, *args, **kwargs):
    """Sum tensors over the ranks, those of one dtype and device as one flat tensor."""
    for tensor in (tensor for tensor in tensors if tensor.is_sparse):
        torch.distributed.all_reduce(tensor, *args, **kwargs)
    dense = [tensor for tensor in tensors if not tensor.is_sparse]
    for kind in dict.fromkeys((tensor.dtype, tensor.device) for tensor in dense):
        same = [tensor for tensor in dense if (tensor.dtype, tensor.device) == kind]
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        torch.distributed.all_reduce(flat, *args, **kwargs)
        for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same])):
            tensor.copy_(part.view_as(tensor))
'''
PLAIN = ("float", "int", "print", "len", "round")
"""Functions that change nothing."""
METHODS = ("append", "add", "update", "write", "info", "debug", "add_scalar", "item", "tolist", "format", "extend")
"""Methods of other objects that keep what they are given."""
ALL_REDUCE = "torch.distributed.all_reduce"


def summed_together(source: Source, lines: Sequence[int]) -> list[Change]:
    """Sum what a loop sums over the ranks one by one in a single collective before the loop, where the rest of the loop
    changes nothing that a later turn sums."""
    found: list[Change] = []
    (name,) = re.findall(r"def (\w+)", TOGETHER)
    if any(name in each.text for each in source.program):
        return []
    listed = next(f"summed{n}" for n in ("", *range(2, 99)) if f"summed{n}" not in names_in(source.tree))
    for loop in source.nodes(ast.For):
        if (first := _first_sum(source, loop)) is None or not _can_be_listed(source, loop.iter) or loop.orelse:
            continue
        statement, call, test = first
        alone = source.stands_alone(loop.body[0]) and source.stands_alone(statement)
        if not alone or not _is_free(source, loop, call) or not _only_divides(source, loop, statement, call):
            continue
        is_all = len(loop.body) == 1 and (statement in loop.body or getattr(loop.body[0], "body", None) == [statement])
        outside = set(source.nodes(ast.Name, within=source.scope(loop))) - set(ast.walk(loop))
        if is_all and names_in(loop.target) & {node.id for node in outside}:
            continue
        chosen = f" if {source.code(test)}" if test is not None else ""
        turns = source.code(loop.iter) if is_all else listed
        tensors = f"[{source.code(call.args[0])} for {source.code(loop.target)} in {turns}{chosen}]"
        together = f"{name}({', '.join((tensors, *map(source.code, call.args[1:]), *map(source.code, call.keywords)))})"
        if is_all:
            found.append(source.replacing(loop, together))
            continue
        once = source.code(loop.iter)
        once = once if isinstance(loop.iter, (ast.Tuple, ast.List, ast.ListComp)) else f"list({once})"
        gone = source.without(statement) if statement in loop.body else source.replacing(statement, "pass")
        found += [source.before(loop, f"{listed} = {once}\n{together}"), source.replacing(loop.iter, listed), gone]
    return source.with_helper(TOGETHER, found)


def _first_sum(source: Source, loop: ast.For) -> tuple[ast.stmt, ast.Call, ast.expr | None] | None:
    """Return the statement that sums the loop's own tensor, its call, and under which test of it, where that is the
    first that the loop does."""
    branch, test = loop.body[0], None
    first: ast.stmt = branch
    if isinstance(branch, ast.If) and not branch.orelse and _is_of_none(branch.test):
        first, test = branch.body[0], branch.test
    match first:
        case ast.Expr(ast.Call(function, [tensor, *_]) as call) if source.names.origin(function) == ALL_REDUCE:
            names = names_in(loop.target)
            owner = tensor
            while isinstance(owner, ast.Attribute) and owner.attr in ("grad", "data"):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in names:
                return first, call, test
    return None


def _is_of_none(test: ast.expr) -> bool:
    """Return True for "p.grad is not None" and the like."""
    match test:
        case ast.Compare(ast.Attribute(ast.Name(), "grad"), [ast.IsNot()], [ast.Constant(None)]):
            return True
    return isinstance(test, ast.Attribute) and test.attr == "requires_grad"


def _is_free(source: Source, loop: ast.For, call: ast.Call) -> bool:
    """Return True where all tensors may be summed before the loop, with the same arguments: these are names and
    attributes that no turn gives anew."""
    more = [*call.args[1:], *(each.value for each in call.keywords)]
    fixed = all(
        isinstance(node, (ast.Name, ast.Attribute, ast.expr_context)) for each in more for node in ast.walk(each)
    )
    depends = {name for each in more for name in names_in(each)} & (names_in(loop.target) | stored_in(loop.body))
    late = any(node.lineno > loop.lineno for node in source.imports()) or isinstance(source.scope(loop), ast.ClassDef)
    asks = any(each.arg in ("async_op", None) for each in call.keywords)
    return fixed and not (depends or late or asks) and len(call.args) <= len(("tensor", "op", "group"))


def _only_divides(source: Source, loop: ast.For, statement: ast.stmt, call: ast.Call) -> bool:
    """Return True where the loop's other statements change nothing that a later turn sums: they set what belongs to
    this turn or is no part of what is gone through, and call methods of such, float() and the like."""
    target, iterated = names_in(loop.target), names_in(loop.iter)
    summed, others = names_in(call.args[0]), set[str]()
    for node in (node for each in loop.body if each is not statement for node in ast.walk(each)):
        if node is call:
            continue
        reads = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in iterated
        if reads or (isinstance(node, ast.Attribute) and node.attr in ("grad", "data") and not _is_own(node, target)):
            return False  # what another turn sums
        match node:
            case ast.Name(name, ast.Store()):
                others.add(name)
            case ast.AugAssign(ast.Name(name)) if name not in target and not _is_number(source, name):
                return False  # a tensor, under another name
            case ast.AugAssign(ast.Attribute() | ast.Subscript() as place) if _root(place) not in target:
                return False
            case ast.Attribute(ctx=ast.Store()):
                others.add(_root(node))
            case ast.Subscript(kept, ctx=ast.Store()):
                others.add(_root(node) if _root(node) in target or _is_display(source, kept) else "")
            case ast.Call(ast.Name(name), arguments):
                if name not in PLAIN or any(names_in(each) & iterated for each in arguments):
                    return False
            case ast.Call(ast.Attribute(_, method) as function, arguments):
                own = _root(function) in target
                if any(names_in(each) & iterated for each in arguments) or not (own or method in METHODS):
                    return False
                if method.endswith("_") or _root(function) in iterated:
                    others.add(_root(function))
            case ast.Call() | ast.Yield() | ast.YieldFrom() | ast.Await() | ast.NamedExpr():
                return False
            case ast.Expr() | ast.If() | ast.Pass() | ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                pass
            case ast.stmt():
                return False
    elsewhere = others - summed
    of_turn = elsewhere & (target - summed)  # no other turn may sum it
    return not (of_turn and not isinstance(loop.iter, (ast.Tuple, ast.List))) and not elsewhere & (iterated | {""})


def _is_number(source: Source, name: str) -> bool:
    """Return True for a name that the file begins at numbers."""
    values = source.names.values(ast.Name(name))
    return bool(values) and all(isinstance(each, ast.Constant) for each in values)


def _is_display(source: Source, place: ast.expr) -> bool:
    """Return True for a dict or list that the file makes: setting an item of it changes no tensor."""
    values = source.names.values(place)
    return bool(values) and all(isinstance(each, (ast.Dict, ast.List, ast.DictComp, ast.ListComp)) for each in values)


def _is_own(node: ast.Attribute, target: set[str]) -> bool:
    """Return True for p.grad and p.grad.data of the turn's p."""
    inner = node.value.value if isinstance(node.value, ast.Attribute) and node.value.attr == "grad" else node.value
    return isinstance(inner, ast.Name) and inner.id in target


def _root(node: ast.expr) -> str:
    """Return the name that an attribute, an item or what a call gives back is reached through; else nothing."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _can_be_listed(source: Source, iterable: ast.expr) -> bool:
    """Return True for what is there whole before the first turn: parameters, buffers, a dict's items, a literal."""
    match iterable:
        case ast.Call(ast.Attribute(_, name), [], []):
            return name in ("parameters", "named_parameters", "buffers", "named_buffers", "items", "values")
        case ast.ListComp():
            return True
        case ast.Tuple(turns) | ast.List(turns):
            each = [_root(one) if isinstance(one, ast.Subscript) else ast.unparse(one)
                    for turn in turns for one in getattr(turn, "elts", [turn])]  # fmt: skip
            return len(set(each)) == len(each)  # what is there twice would be summed twice
        case ast.Name(name):
            bound = [one for one in source.nodes(ast.Name) if one.id == name and not isinstance(one.ctx, ast.Load)]
            given, values = {one.arg for one in source.nodes(ast.arg)}, source.names.values(iterable)
            lists = [one for one in values if isinstance(one, (ast.List, ast.Tuple, ast.ListComp))]
            whole = name not in given and len(values) == len(bound) == len(lists) > 0
            return whole and all(_can_be_listed(source, one) for one in lists)
    return False
