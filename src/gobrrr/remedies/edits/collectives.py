"""Edits of what goes around the ranks: gradients summed once per update, many tensors summed as one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Change, Source
from gobrrr.remedies.edits.training import made_optimizers

SAID = ("no_sync", "accumulate")
"""Functions by which a program says itself which passes are summed."""
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
ALL_REDUCE = "torch.distributed.all_reduce"
GIVE_AGAIN = ("parameters", "named_parameters", "items", "values", "buffers", "named_buffers")
"""Methods whose result is the same each time that they are called."""


def synced_once(source: Source, lines: Sequence[int]) -> list[Change]:
    """Let DistributedDataParallel sum gradients in the last backward pass before an update alone.

    Only where the text leaves no doubt: one backward pass in all of the program, all updates under one condition behind
    it or behind an inner loop, the condition known before the model is called, gradients read nowhere else.
    """
    files = source.program
    passes = [call for each in files for call in each.calls(["backward"])]
    flags = any(node.attr == "require_backward_grad_sync" for each in files for node in each.nodes(ast.Attribute))
    if flags or any(each.calls(SAID) for each in files) or len(passes) != 1:
        return []
    backward = next((call for call in source.calls(["backward"]) if call is passes[0]), None)
    loop = next(iter(source.loops(backward)), None) if backward is not None else None
    if backward is None or not isinstance(loop, (ast.For, ast.While)):
        return []
    wrapped = {
        ast.unparse(to) for each in files for _, targets, value in each.assignments() for to in targets
        if isinstance(value, ast.Call) and each.names.origin(value.func).endswith("DistributedDataParallel")
    }  # fmt: skip
    called = [each for each in source.nodes(ast.Call, within=loop) if ast.unparse(each.func) in wrapped]
    first = _statement_of(loop, called[0]) if called else None
    last = _is_last(source, loop, backward)
    if first is None or last is None or _reads_gradients(loop, last[1]):
        return []
    at = _known_from(loop, *last)
    if at is None or at > first or not source.stands_alone(loop.body[at]):
        return []
    names = dict.fromkeys(ast.unparse(each.func) for each in called)
    text = "\n".join(f"{name}.require_backward_grad_sync = {ast.unparse(last[0])}" for name in names)
    return [source.before(loop.body[at], text)]


def _statement_of(loop: ast.For | ast.While, call: ast.Call) -> int | None:
    """Return which statement of the loop's body makes a call in every pass: by itself, or in a `with`."""
    for n, each in enumerate(loop.body):
        inner: list[ast.stmt] = [each]
        while len(inner) == 1 and isinstance(inner[0], ast.With):
            inner = inner[0].body
        if any(call in ast.walk(one) for one in inner if not hasattr(one, "body")):
            return n
    return None


def _is_last(
    source: Source, loop: ast.For | ast.While, backward: ast.Call
) -> tuple[ast.expr, ast.stmt | None] | None:  # fmt: skip
    """(the condition under which a pass of the loop is the last before an update, the branch that makes it): that of
    the only updates, in the loop behind the pass; or of the loop's end, where they stand behind it."""
    owners = _updaters(source)
    updates = {call for each in source.program for call in each.calls(["step"]) if _owner(call) in owners}
    here = _statement_of(loop, backward)
    if not updates or here is None:
        return None
    for branch in (each for each in loop.body[here + 1 :] if isinstance(each, ast.If) and not each.orelse):
        if updates <= set(ast.walk(branch)):
            return (branch.test, branch) if _is_plain(branch.test, loop) else None
    outer = next(iter(source.loops(loop)), None)
    if not isinstance(outer, (ast.For, ast.While)) or loop not in outer.body or loop.orelse:
        return None
    behind = {node for each in outer.body[outer.body.index(loop) + 1 :] for node in ast.walk(each)}
    leaves = any(isinstance(node, (ast.Break, ast.Continue, ast.Return)) for node in ast.walk(loop))
    if not updates <= behind or leaves:
        return None
    match loop:
        case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [number], [])) if _is_plain(number, loop):
            if not {name, *_names(number)} & _stored(loop.body):
                return ast.parse(f"{name} == ({ast.unparse(number)}) - 1", mode="eval").body, None
    return None


def _updaters(source: Source) -> set[str]:
    """Names of optimizers, and of what scales their gradients."""
    found = set[str]()
    for each in source.program:
        made = made_optimizers(each)
        for node, targets, value in each.assignments():
            scales = isinstance(value, ast.Call) and last_name(value.func) == "GradScaler"
            found |= {last_name(to) for to in targets} if node in made or scales else set()
    return found


def _owner(call: ast.Call) -> str:
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _stored(body: Sequence[ast.stmt]) -> set[str]:
    """Names that statements bind, or change a part of: x, x.y and x[0] are x."""
    kinds = (ast.Name, ast.Attribute, ast.Subscript)
    stores = (
        node for each in body for node in ast.walk(each)
        if isinstance(node, kinds) and isinstance(node.ctx, (ast.Store, ast.Del))
    )  # fmt: skip
    return {name for node in stores for name in _names(node)}


def _is_plain(test: ast.expr, loop: ast.For | ast.While) -> bool:
    """Return True for an expression that can be computed earlier as well: it calls len() at most, and no method of what
    it reads is called in the loop, which may change it."""
    calls = [node for node in ast.walk(test) if isinstance(node, (ast.Call, ast.NamedExpr, ast.Await))]
    if not all(isinstance(each, ast.Call) and ast.unparse(each.func) == "len" for each in calls):
        return False
    asked = [node.value for node in ast.walk(test) if isinstance(node, (ast.Attribute, ast.Subscript))]
    asked += [arg for each in calls if isinstance(each, ast.Call) for arg in each.args]
    methods = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    changing = {name for func in methods if isinstance(func, ast.Attribute) for name in _names(func.value)}
    return not changing & {name for each in asked for name in _names(each)}


def _known_from(loop: ast.For | ast.While, test: ast.expr, branch: ast.stmt | None) -> int | None:
    """Return before which statement of the loop's body the test has its value for this pass."""
    read, found = _names(test), 0
    for n, each in enumerate(loop.body[: loop.body.index(branch) if branch is not None else None]):
        if read & _stored([each]):
            found = n + 1
    return found if found < len(loop.body) else None


def _reads_gradients(loop: ast.For | ast.While, branch: ast.stmt | None) -> bool:
    """Return True where gradients are clipped, unscaled or read in the loop outside of the update's branch."""
    for each in (statement for statement in loop.body if statement is not branch):
        for node in ast.walk(each):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name.startswith("clip_grad") or name in ("grad", "unscale_", "get_total_norm"):
                return True
    return False


def summed_together(source: Source, lines: Sequence[int]) -> list[Change]:
    """Sum what a loop sums over the ranks one by one in a single collective before the loop."""
    found: list[Change] = []
    for loop in source.nodes(ast.For):
        if (first := _first_sum(source, loop)) is None or not _gives_again(source, loop.iter) or loop.orelse:
            continue
        statement, call, test = first
        if (
            not source.stands_alone(loop.body[0])
            or not source.stands_alone(statement)
            or not _is_free(source, loop, call)
        ):
            continue
        chosen = f" if {source.code(test)}" if test is not None else ""
        tensors = f"[{source.code(call.args[0])} for {source.code(loop.target)} in {source.code(loop.iter)}{chosen}]"
        given = ", ".join((tensors, *map(source.code, call.args[1:]), *map(source.code, call.keywords)))
        together = f"all_reduce_together({given})"
        alone = loop.body[0] is statement or getattr(loop.body[0], "body", None) == [statement]
        if alone and len(loop.body) == 1:
            later = (node for node in source.nodes(ast.Name, within=source.scope(loop)) if node.lineno > loop.lineno)
            if _names(loop.target) & {node.id for node in later if node.lineno > (loop.end_lineno or 0)}:
                continue
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


def _is_free(source: Source, loop: ast.For, call: ast.Call) -> bool:
    """Return True where all tensors may be summed before the loop, with the same arguments: none depends on the turn,
    every turn is made, and none changes what a later one sums."""
    more = [*call.args[1:], *(each.value for each in call.keywords)]
    depends = any(_names(each) & _names(loop.target) for each in more) or len(call.args) > len(
        ("tensor", "op", "group")
    )
    leaves = any(isinstance(node, (ast.Break, ast.Continue, ast.Return)) for node in ast.walk(loop))
    changes = isinstance(loop.iter, (ast.List, ast.Tuple)) and _names(loop.iter) & _stored(loop.body)
    imports = [node for node in source.imports() if node.lineno > loop.lineno]
    asks = any(each.arg in ("async_op", None) for each in call.keywords)
    return not (depends or leaves or changes or asks or (imports and source.scope(loop) is source.tree))


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
