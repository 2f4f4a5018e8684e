"""Edit of gradient accumulation: gradients go around the ranks once per update, not in each backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Change, Source, bound_in, functions, names_in, stored_in
from gobrrr.remedies.edits.training import made_optimizers

SAID = ("no_sync", "accumulate")
"""Functions by which a program says itself which passes are summed."""
SEES = re.compile(r"(?i)hook|clip|grad_norm|^(setattr|getattr|Join|_set_static_graph|register_buffer)$")
"""Calls by which more than the update's branch may see gradients, change what a condition reads, or read buffers,
which DistributedDataParallel sends around after passes that sum alone."""
HARMLESS = {
    "append", "detach", "float", "format", "int", "item", "len", "monotonic", "perf_counter", "print", "process_time",
    "round", "str", "time", "tolist", "zero_grad",
}  # fmt: skip
"""Calls that may stand behind a backward pass outside of the update: they see no gradients."""
NO_UPDATE = re.compile(r"^torch\.(optim\.lr_scheduler|profiler)\.|^transformers\..*schedule")
"""What makes things whose step() updates no weights."""


def synced_once(source: Source, lines: Sequence[int]) -> list[Change]:
    """Let DistributedDataParallel sum gradients in the last backward pass before an update alone.

    Only where the text leaves no doubt: one backward pass in all of the program, all updates under one condition behind
    it or behind an inner loop, the condition a comparison of counts that is known before the model is called, gradients
    read and hooked nowhere else.
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
    made = [
        (to, value) for each in files for _, targets, value in each.assignments() for to in targets
        if isinstance(value, ast.Call) and each.names.origin(value.func).endswith("DistributedDataParallel")
    ]  # fmt: skip
    wrapped = {ast.unparse(to) for to, _ in made}
    joins = {ast.unparse(call.func) for each in files for call in each.calls(["join"])} & {f"{w}.join" for w in wrapped}
    if joins or any(one.arg == "static_graph" for _, value in made for one in value.keywords):
        return []
    called = [each for each in source.nodes(ast.Call, within=loop) if ast.unparse(each.func) in wrapped]
    first = _statement_of(loop, called[0]) if called else None
    back = _statement_of(loop, backward)
    last = _last_pass(source, loop, back) if back is not None else None
    if first is None or back is None or last is None or _sees_gradients(source, last[2]):
        return []
    known = wrapped | {ast.unparse(arg) for _, value in made for arg in value.args[:1]}
    if _is_handed_over(source, loop, known, last[2] | {each.func for each in called}, back):
        return []
    at = _known_from(loop, *last[:2])
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


def _last_pass(
    source: Source, loop: ast.For | ast.While, back: int
) -> tuple[ast.expr, ast.stmt | None, set[ast.AST]] | None:  # fmt: skip
    """Return (condition under which a pass of the loop is the last before an update, branch that makes the update or
    None, all nodes of the update). The updates stand in one branch behind backward, which is statement `back`; or all
    behind the loop, so that its last pass is meant. None where they stand elsewhere."""
    if not (updates := _updates(source)):
        return None
    for branch in (each for each in loop.body[back + 1 :] if isinstance(each, ast.If) and not each.orelse):
        if updates <= set(ast.walk(branch)):
            is_plain = not _is_bare(loop, branch.test) and _counted(source, loop, branch.test)
            return (branch.test, branch, set(ast.walk(branch))) if is_plain else None
    outer = next(iter(source.loops(loop)), None)
    if not isinstance(outer, (ast.For, ast.While)) or loop not in outer.body or loop.orelse:
        return None
    behind = {node for each in outer.body[outer.body.index(loop) + 1 :] for node in ast.walk(each)}
    leaves = any(isinstance(node, (ast.Break, ast.Continue, ast.Return)) for node in ast.walk(loop))
    if not updates <= behind or leaves:
        return None
    match loop:
        case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [number], [])):
            if _counted(source, loop, number) is not None and not {name, *names_in(number)} & stored_in(loop.body):
                test = ast.parse(f"{name} == ({ast.unparse(number)}) - 1", mode="eval").body
                return test, None, behind
    return None


def _updates(source: Source) -> set[ast.AST]:
    """Return all that the program reads of a step() but of torch's schedulers and profilers; none where no optimizer's
    is among them."""
    optimizers = {last_name(to) for each in source.program for to in _made(each)}
    found = {
        node for each in source.program for node in each.nodes(ast.Attribute)
        if node.attr == "step" and not _is_no_update(each, node.value)
    }  # fmt: skip
    return set[ast.AST](found) if optimizers & {last_name(node.value) for node in found} else set()


def _made(source: Source) -> list[ast.expr]:
    """Return what optimizers are assigned to, and what scales their gradients."""
    made = made_optimizers(source)
    scales = ("GradScaler",)
    return [to for node, targets, value in source.assignments() for to in targets
            if node in made or (isinstance(value, ast.Call) and last_name(value.func) in scales)]  # fmt: skip


def _is_no_update(source: Source, owner: ast.expr) -> bool:
    """Return True for a scheduler or a profiler, by what it is made with."""
    name, made = ast.unparse(owner), list(source.names.values(owner))
    items = (item for node in source.nodes(ast.With) for item in node.items)
    made += [one.context_expr for one in items if one.optional_vars and ast.unparse(one.optional_vars) == name]
    calls = [source.names.origin(each.func) if isinstance(each, ast.Call) else "" for each in made]
    return bool(calls) and all(map(NO_UPDATE.search, calls))


def _is_handed_over(
    source: Source, loop: ast.For | ast.While, models: set[str], fine: Collection[ast.AST], back: int
) -> bool:  # fmt: skip
    """Return True where the loop gives models, their weights, their optimizers or what was made of them to a function,
    which may read gradients, or calls an unknown one behind statement `back`; `fine`: places where it may."""
    known, optimizers = set(models), {ast.unparse(to) for to in _made(source)}
    every = [(targets, value) for _, targets, value in source.assignments()]
    every += [([each.target], each.iter) for each in source.nodes(ast.For)]
    every += [([item.optional_vars], item.context_expr) for each in source.nodes(ast.With) for item in each.items
              if item.optional_vars is not None]  # fmt: skip

    def read(node: ast.AST) -> set[str]:
        places = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)) and each not in fine)
        return {ast.unparse(each) for each in places if isinstance(each.ctx, ast.Load)}

    reads = [(targets, read(value)) for targets, value in every]
    for _ in every:  # until nothing new is made of them
        made = (to for targets, names in reads if known & names for to in targets)
        parts = (each for to in made if not _is_no_update(source, to) for each in ast.walk(to))
        more = {ast.unparse(each) for each in parts if isinstance(each, (ast.Name, ast.Attribute))}
        if more <= known:
            break
        known |= more
    calls = [call for call in source.nodes(ast.Call, within=loop) if call not in fine and call.func not in fine]
    given = [arg for call in calls for arg in (*call.args, *(each.value for each in call.keywords))]
    of_both = known - optimizers - models  # methods of models and optimizers read no gradients: zero_grad, train
    behind = {node for each in loop.body[back + 1 :] for node in ast.walk(each)}

    def unknown(call: ast.Call) -> bool:
        name, of = last_name(call.func), call.func.value if isinstance(call.func, ast.Attribute) else None
        return not (name in HARMLESS or (of is not None and _is_no_update(source, of)))

    return (
        any(known & read(each) for each in given) or any(of_both & read(call.func) for call in calls)
        or any(call in behind and unknown(call) for call in calls)
    )  # fmt: skip


def _is_bare(loop: ast.For | ast.While, test: ast.expr) -> bool:
    """Return True where a test is, or has as a part, a mere truth value: no comparison, no arithmetic, and no name that
    the loop assigns one to."""
    if isinstance(test, ast.BoolOp):
        return any(_is_bare(loop, each) for each in test.values)
    if isinstance(test, ast.UnaryOp):
        return not isinstance(test.operand, (ast.BinOp, ast.Compare)) and _is_bare(loop, test.operand)
    given = _given(loop, test)
    return _is_bare(loop, given) if given is not None else not isinstance(test, (ast.Compare, ast.BinOp))


def _given(loop: ast.For | ast.While, name: ast.expr) -> ast.expr | None:
    """Return the value of the only assignment to a name in the loop; None where there is none, or several."""
    if not isinstance(name, ast.Name):
        return None
    bound = [node for node in bound_in(loop) if isinstance(node, ast.Name) and node.id == name.id]
    sets = [each for each in loop.body if isinstance(each, ast.Assign) and each.targets == bound]
    return sets[0].value if sets else None


def _counted(source: Source, loop: ast.For | ast.While, node: ast.expr) -> set[str] | None:
    """Return the loop's counters in an expression that is made of counters, settings and numbers; None for any other
    expression. A counter is changed by the loop's own statements alone, a setting by none."""
    parts: list[ast.expr] = []
    match node:
        case ast.Constant(int() | float()):
            return set()
        case ast.BoolOp(_, values):
            parts = values
        case ast.BinOp(left, _, right):
            parts = [left, right]
        case ast.Compare(left, operators, others):
            if any(isinstance(each, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for each in operators):
                return None
            parts = [left, *others]
        case ast.UnaryOp(_, operand):
            parts = [operand]
        case ast.Call(ast.Name("len"), [ast.Name() | ast.Attribute() as kept], []):
            changed = stored_in(loop.body) | _touched(loop)
            changed |= {name for each in functions(source) if loop not in ast.walk(each) for name in _touched(each)}
            return None if names_in(kept) & changed else set()
        case ast.Name() if (given := _given(loop, node)) is not None:
            return _counted(source, loop, given)
        case ast.Name() | ast.Attribute() | ast.Subscript(ast.Name(), ast.Constant()):
            text, inside = ast.unparse(node), _stores(*loop.body)
            if _is_of_rank(source, node, set()) or _is_changed_elsewhere(source, loop, node):
                return None
            if text in inside and not _grows_by_constants(loop, text):
                return None
            return {text} if text in inside or text in _positions(source, loop) else set()
        case _:
            return None
    found = [_counted(source, loop, each) for each in parts]
    if isinstance(node, (ast.Compare, ast.BoolOp)) and not any(found):
        return None
    return None if None in found else {name for each in found for name in each or ()}


def _is_of_rank(source: Source, node: ast.expr, seen: set[str]) -> bool:
    """Return True for what is given a value that may differ from rank to rank: by its name, or the environment."""
    for value in source.names.values(node):
        for each in ast.walk(value):
            text = ast.unparse(each) if isinstance(each, (ast.Name, ast.Attribute)) else ""
            if "rank" in text.lower() or "environ" in text or "getenv" in text:
                return True
            if text and text not in seen and isinstance(each, ast.expr):
                seen.add(text)
                if _is_of_rank(source, each, seen):
                    return True
    return False


def _positions(source: Source, loop: ast.For | ast.While) -> set[str]:
    """Return what counts the passes of a loop and of those around it: of range(), and the first of enumerate()."""
    found = set[str]()
    for each in (loop, *source.loops(loop)):
        match each:
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"))):
                found.add(name)
            case ast.For(ast.Tuple([ast.Name(name), *_]), ast.Call(ast.Name("enumerate"))):
                found.add(name)
    return found


def _stores(*nodes: ast.AST) -> set[str]:
    """Texts of what is bound: x, x.y, x[0]."""
    return {ast.unparse(each) for each in bound_in(*nodes)}


def _grows_by_constants(loop: ast.For | ast.While, text: str) -> bool:
    """Return True for a counter that the loop sets to constants or adds constants to in every pass, or behind a test
    of itself: ranks count alike."""
    kinds, every = (ast.Assign, ast.AugAssign, ast.AnnAssign), list(loop.body)
    for each in loop.body:
        if isinstance(each, ast.If) and text in map(ast.unparse, ast.walk(each.test)):
            every += each.body
    sets = [each for each in every if isinstance(each, kinds) and text in _stores(each)]
    bound = [node for node in bound_in(loop) if ast.unparse(node) == text]
    return len(sets) == len(bound) and all(isinstance(each.value, ast.Constant) for each in sets)


def _touched(loop: ast.AST) -> set[str]:
    """Names whose methods a loop calls, or that it hands to functions: these may change what they stand for."""
    found = set[str]()
    for call in (node for node in ast.walk(loop) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute):
            found |= names_in(call.func.value)
        if not (isinstance(call.func, ast.Name) and call.func.id in ("len", "range", "enumerate", "print")):
            given = (*call.args, *(each.value for each in call.keywords))
            found |= {each.id for each in given if isinstance(each, ast.Name)}
    return found


def _is_changed_elsewhere(source: Source, loop: ast.For | ast.While, node: ast.expr) -> bool:
    """Return True where functions may change what a name, an attribute or an item stands for while the loop runs."""
    others = [(each, one) for each in source.program for one in functions(each) if loop not in ast.walk(one)]
    if isinstance(node, ast.Attribute):
        late = [one for _, one in others if one.name not in ("__init__", "__post_init__", "setup")]
        stores = (text.rpartition(".")[2] for text in _stores(*late) if "." in text)
        named = {*stores, *(one.name for each in source.program for one in functions(each))}  # or a property
        return node.attr in named or bool((names_in(node) - {"self"}) & _touched(loop))
    declared = {name for each in source.program for one in each.nodes(ast.Global) for name in one.names}
    declared |= {name for each in source.program for one in each.nodes(ast.Nonlocal) for name in one.names}
    items = {text.partition("[")[0] for text in _stores(*(one for _, one in others)) if "[" in text}
    is_set = isinstance(node, ast.Subscript) and ast.unparse(node.value) in items
    return is_set or bool(names_in(node) & (_touched(loop) | declared))


def _known_from(loop: ast.For | ast.While, test: ast.expr, branch: ast.stmt | None) -> int | None:
    """Return before which statement of the loop's body the test has its value for this pass."""
    read, found = names_in(test), 0
    for n, each in enumerate(loop.body[: loop.body.index(branch) if branch is not None else None]):
        if read & stored_in([each]):
            found = n + 1
    return found if found < len(loop.body) else None


def _sees_gradients(source: Source, update: set[ast.AST]) -> bool:
    """Return True where gradients are clipped, unscaled, hooked or read outside of the update."""
    every = (node for each in source.program for node in (*each.nodes(ast.Attribute), *each.nodes(ast.Name)))
    for node in every:
        name = last_name(node)
        said = SEES.search(name) or name in ("grad", "unscale_", "get_total_norm")
        if said and node not in update and source.names.origin(node) != "torch.autograd.grad":
            return True
    return False
