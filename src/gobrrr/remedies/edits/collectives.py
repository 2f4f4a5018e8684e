"""Edits of what goes around the ranks: gradients summed once per update, many tensors summed as one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Change, Source

SAID = ("no_sync", "accumulate", "require_backward_grad_sync")
"""Names by which a program says itself which passes are summed."""
TOGETHER = '''\
@torch.no_grad()
def all_reduce_together(tensors, *args, **kwargs):
    """Sum tensors over the ranks, those of one dtype as one flat tensor."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        torch.distributed.all_reduce(flat, *args, **kwargs)
        for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same])):
            tensor.copy_(part.view_as(tensor))
'''
ALL_REDUCE = "torch.distributed.all_reduce"
GIVE_AGAIN = ("parameters", "named_parameters", "items", "values", "buffers", "named_buffers")
"""Methods whose result is the same each time that they are called."""


def synced_once(source: Source, lines: Sequence[int]) -> list[Change]:
    """Let DistributedDataParallel sum gradients in the last backward pass before an update alone."""
    files = source.program
    if any(node.attr in SAID for each in files for node in each.nodes(ast.Attribute)):
        return []
    wrapped = {
        ast.unparse(to) for each in files for _, targets, value in each.assignments() for to in targets
        if isinstance(value, ast.Call) and _is_wrapper(each, value)
    }  # fmt: skip
    for call in source.calls(["backward"]):
        for loop in source.loops(call)[:1]:
            called = [each for each in source.nodes(ast.Call, within=loop) if ast.unparse(each.func) in wrapped]
            place = _first(loop, called[0]) if called else None
            last = _is_last(source, loop, call)
            if place is not None and last is not None:
                at = _known_from(source, loop, last)
                if at <= place and source.stands_alone(loop.body[at]):  # type: ignore[attr-defined]
                    name = ast.unparse(called[0].func)
                    text = f"{name}.require_backward_grad_sync = {ast.unparse(last)}"
                    return [source.before(loop.body[at], text)]  # type: ignore[attr-defined]
    return []


def _is_wrapper(source: Source, call: ast.Call) -> bool:
    return source.names.origin(call.func).endswith("DistributedDataParallel")


def _first(loop: ast.stmt, call: ast.Call) -> int | None:
    """Return which statement of the loop's body has the call."""
    body: list[ast.stmt] = loop.body  # type: ignore[attr-defined]
    return next((n for n, each in enumerate(body) if call in ast.walk(each)), None)


def _is_last(source: Source, loop: ast.stmt, backward: ast.Call) -> ast.expr | None:
    """Return the condition under which a pass of the loop is the last before an update: that of the update in the loop,
    or of the loop's end where the update stands behind it."""
    steps = [each for each in source.calls(["step"]) if _is_update(each)]
    for branch in (each for each in loop.body if isinstance(each, ast.If)):  # type: ignore[attr-defined]
        inside = {node for each in branch.body for node in ast.walk(each)}
        if not branch.orelse and inside.intersection(steps) and backward not in inside:
            return branch.test if _is_plain(branch.test) else None
    outer = next(iter(source.loops(loop)), None)
    if outer is None or any(node in steps for node in ast.walk(loop)):
        return None
    if not any(node in steps and node.lineno > loop.lineno for node in ast.walk(outer) if isinstance(node, ast.Call)):
        return None
    match loop:
        case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [number], [])) if _is_plain(number):
            return ast.parse(f"{name} == ({ast.unparse(number)}) - 1", mode="eval").body
    return None


def _is_update(call: ast.Call) -> bool:
    """Return True for the step() of what is no scheduler, by its name."""
    owner = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return "sched" not in owner.lower() and owner.lower() not in ("lr", "profiler", "prof", "p")


def _is_plain(test: ast.expr) -> bool:
    """Return True for an expression that can be computed earlier as well: it calls len() at most."""
    calls = [node for node in ast.walk(test) if isinstance(node, (ast.Call, ast.NamedExpr, ast.Await))]
    return all(isinstance(each, ast.Call) and ast.unparse(each.func) == "len" for each in calls)


def _known_from(source: Source, loop: ast.stmt, test: ast.expr) -> int:
    """Return before which statement of the loop's body the test has its value for this pass."""
    read = {ast.unparse(node) for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute))}
    body: list[ast.stmt] = loop.body  # type: ignore[attr-defined]
    used = next((n for n, each in enumerate(body) if isinstance(each, ast.If) and each.test is test), None)
    found = 0
    for n, each in enumerate(body[:used]):
        stored = (node for node in ast.walk(each) if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)))
        if read & {ast.unparse(node) for node in stored}:
            found = n + 1
    return found


def summed_together(source: Source, lines: Sequence[int]) -> list[Change]:
    """Sum what a loop sums over the ranks one by one in a single collective before the loop."""
    found: list[Change] = []
    for loop in source.nodes(ast.For):
        if (first := _first_sum(source, loop)) is None or not _gives_again(source, loop.iter) or loop.orelse:
            continue
        statement, call, test = first
        if not source.stands_alone(loop.body[0]) or not source.stands_alone(statement) or _is_async(call):
            continue
        chosen = f" if {source.code(test)}" if test is not None else ""
        tensors = f"[{source.code(call.args[0])} for {source.code(loop.target)} in {source.code(loop.iter)}{chosen}]"
        given = ", ".join((tensors, *map(source.code, call.args[1:]), *map(source.code, call.keywords)))
        together = f"all_reduce_together({given})"
        alone = loop.body[0] is statement or getattr(loop.body[0], "body", None) == [statement]
        if alone and len(loop.body) == 1:
            found.append(source.replacing(loop, together))
        elif statement in loop.body:
            found += [source.before(loop, together), source.without(statement)]
        else:
            found += [source.before(loop, together), source.replacing(statement, "pass")]
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
            names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
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


def _is_async(call: ast.Call) -> bool:
    return any(each.arg in ("async_op", None) for each in call.keywords)


def _gives_again(source: Source, iterable: ast.expr) -> bool:
    """Return True for what can be gone through twice, as far as the text says."""
    match iterable:
        case ast.Call(ast.Attribute(_, name)):
            return name in GIVE_AGAIN
        case ast.Tuple() | ast.List():
            return not any(isinstance(node, ast.Call) for node in ast.walk(iterable))
        case ast.Name():
            values = source.names.values(iterable)
            kinds = (ast.List, ast.Tuple, ast.Dict, ast.ListComp)
            return bool(values) and all(isinstance(each, kinds) for each in values)
    return False
