"""Edits of programs, or parts of them, that only infer: no graph, layers folded, weights frozen or in 8 bits."""

from __future__ import annotations

import ast
import re
import symtable
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.names import FUNCTIONS
from gobrrr.remedies.edits.source import Change, Source, names_in

GRADIENTS = ("backward", "grad", "vjp", "jvp", "zero_grad")
"""Calls of code that wants a graph."""
TRAINS = (*GRADIENTS, "fit", "step", "train")
"""Calls of programs that train, themselves or by a library."""
GRAPHLESS = ("no_grad", "inference_mode", "set_grad_enabled")
PRETRAINED = re.compile(r"Model|For[A-Z]")
"""Classes whose from_pretrained gives a model."""
MOVES = ("eval", "to", "cuda", "cpu", "half", "bfloat16", "float", "requires_grad_")
"""Methods of a module that give itself back."""
LOADS = re.compile(r"(?i)(.*_)?(re)?(load(?!er)|store)")
"""Functions that fill a model's weights, where it is among what they are given."""
UNNAMED = "ready_model"
"""Name of a model that the program gives none."""
INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def without_graph(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put the function in which the model is called under torch.no_grad(); where that trains as well, or there is none,
    the outermost loop there that does not, or the statement itself."""
    for line in lines:
        there = [each for each in source.nodes(ast.stmt) if each.lineno <= line <= (each.end_lineno or 0)]
        inner = max(there, key=lambda each: (each.lineno, each.col_offset), default=None)
        if inner is None or isinstance(inner, (*FUNCTIONS, ast.ClassDef)):
            continue
        around = [inner, *(each for each in source.parents(inner) if isinstance(each, ast.stmt))]
        function = next((each for each in around if isinstance(each, FUNCTIONS)), None)
        if function is not None and function.name in ("forward", "__call__"):
            continue  # training may call it too
        above = [each for each in source.parents(inner) if isinstance(each, (ast.With, *FUNCTIONS))]
        if any(source.calls(GRAPHLESS, within=part) for each in above for part in _heads(each)):
            return []
        return _under_no_grad(source, around, function)
    return []


def _heads(node: ast.With | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    return [each.context_expr for each in node.items] if isinstance(node, ast.With) else node.decorator_list


def _under_no_grad(
    source: Source, around: Sequence[ast.stmt], function: ast.FunctionDef | ast.AsyncFunctionDef | None
) -> list[Change]:  # fmt: skip
    if isinstance(function, ast.FunctionDef) and not source.calls(GRADIENTS, within=function):
        return source.with_helper("import torch", [source.before(function, "@torch.no_grad()")])
    inside = around[: around.index(function)] if function is not None else around
    plain = [each for each in inside if not source.calls(GRADIENTS, within=each)]
    loops = [each for each in plain if isinstance(each, (ast.For, ast.While))]
    chosen = (loops or plain[:1])[-1:]
    if not chosen or not source.stands_alone(chosen[0]):
        return []
    return source.with_helper("import torch", source.wrapped(chosen[0], "with torch.no_grad():"))


@dataclass(frozen=True)
class WhereReady:
    """Put statements about `{model}` where a model that only infers is ready, and what they need behind the imports;
    a model that has no name there gets one. Where the program may come there again, they are done once."""

    code: str
    helper: str = ""
    without: tuple[str, ...] = ()
    """Names that no file of the program may call."""
    of: tuple[str, ...] = ()
    """Words of which the program has one, or there is nothing to do."""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Add them."""
        if self.of and not any(word in each.text for each in source.program for word in self.of):
            return []
        if source.program_calls(*self.without) or (place := _place(source)) is None:
            return []
        code, helper = self.code, self.helper
        if not _is_reached_once(source, place.statement):
            body = textwrap.indent(code.replace("{model}", "changed"), "    ")
            code = f"def change_model(changed):\n{body}\n    return changed\n"
            code += "{model} = gobrrr.layers.made_once({model}, change_model)"
            helper = "\n".join(dict.fromkeys((*helper.splitlines(), "import gobrrr.layers")))
        code = code.replace("{model}", place.name or UNNAMED)
        if place.name:
            return source.with_helper(helper, [*place.declared, source.behind(place.last, code)])
        named = f"{UNNAMED} = {source.code(place.found)}\n{code}"
        changes = [source.before(place.statement, named), source.replacing(place.found, UNNAMED)]
        return source.with_helper(helper, changes)


class _Place(NamedTuple):
    """Expression that gives the model, its statement, the last one that only moves or fills the model, its name, empty
    where it has none, and what lets a function bind that."""

    found: ast.Call
    statement: ast.stmt
    last: ast.stmt
    name: str
    declared: list[Change]


def _place(source: Source) -> _Place | None:
    """Where the program's first model is ready, if that is in this file, in a statement that stands alone."""
    places = ((each, calls[0]) for seek in (_ready, _pretrained) for each in source.program if (calls := seek(each)))
    first, found = next(places, (None, None))
    if first is not source or found is None or not source.stands_alone(statement := source.statement(found)):
        return None
    kept: list[ast.expr] = []
    if isinstance(statement, (ast.Assign, ast.Expr)) and statement.value is found:
        kept = statement.targets if isinstance(statement, ast.Assign) else [_root(found)]
    if len(kept) != 1 or not isinstance(kept[0], (ast.Name, ast.Attribute, ast.Subscript)):
        maybe = any(isinstance(each, (ast.IfExp, ast.BoolOp, ast.NamedExpr)) for each in ast.walk(statement))
        plain = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)) and not maybe
        return _Place(found, statement, statement, "", []) if plain and UNNAMED not in source.text else None
    return _Place(found, statement, _last(source, statement, kept[0]), source.code(kept[0]), _declared(source, kept[0]))


def _declared(source: Source, model: ast.expr) -> list[Change]:
    """Return the statement that lets a function bind a name of the file's, or of an outer function's."""
    function = source.scope(model)
    if not isinstance(model, ast.Name) or not isinstance(function, FUNCTIONS):
        return []
    tables = [symtable.symtable(source.data.decode(), "<program>", "exec")]
    for table in tables:
        tables += table.get_children()
        if table.get_lineno() == function.lineno and table.get_name() == function.name:
            symbol = table.lookup(model.id) if model.id in table.get_identifiers() else None
            if symbol is not None and (symbol.is_global() or symbol.is_free()):
                first = function.body[bool(ast.get_docstring(function) and function.body[1:])]
                return [source.before(first, f"{'nonlocal' if symbol.is_free() else 'global'} {model.id}")]
    return []


def _last(source: Source, statement: ast.stmt, model: ast.expr) -> ast.stmt:
    """The last of the statements behind it in its block that move or fill the model: moves with none about it between,
    and whatever loads weights into it."""
    name, words, going = source.code(model), names_in(model), True
    for later in _behind(source, statement):
        chain = getattr(getattr(later, "value", None), "func", None)
        moves = isinstance(chain, ast.Attribute) and chain.attr in MOVES and source.code(_root(chain.value)) == name
        loads = not isinstance(later, (*FUNCTIONS, ast.ClassDef)) and any(
            LOADS.match(last_name(call.func)) and words & names_in(call)
            for call in source.nodes(ast.Call, within=later)
        )
        if (loads or (moves and going)) and source.stands_alone(later):
            statement, going = later, True
        else:
            going = going and not words & names_in(later)
    return statement


def _behind(source: Source, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements behind it in its block, and behind `with` statements that it stands in."""
    for above in source.parents(statement):
        block = next(each for _, each in ast.iter_fields(above) if isinstance(each, list) and statement in each)
        yield from block[block.index(statement) + 1 :]
        if not isinstance(above, ast.With):
            return
        statement = above


def _is_reached_once(source: Source, node: ast.AST, seen: Collection[str] = ()) -> bool:
    """Whether the program's text has one way to a place, and no loop on it."""
    scope = source.scope(node)
    if isinstance(scope, ast.Module) or _repeats(source, node):
        return not _repeats(source, node)
    if not isinstance(scope, FUNCTIONS):
        return _is_reached_once(source, scope, seen)
    owner = source.scope(scope)
    name = owner.name if isinstance(owner, ast.ClassDef) and scope.name == "__init__" else scope.name
    uses = [(each, use) for each in source.program for use in each.nodes(ast.Name, ast.Attribute)
            if name == last_name(use)]  # fmt: skip
    if len(uses) != 1 or name in seen:
        return False
    (where, use), = uses  # fmt: skip
    call = next(where.parents(use))
    return isinstance(call, ast.Call) and call.func is use and _is_reached_once(where, call, (*seen, name))


def _repeats(source: Source, node: ast.AST) -> bool:
    """Whether it stands in a loop of its function, a comprehension or a lambda."""
    return bool(source.loops(node)) or any(isinstance(each, INNER) for each in source.parents(node))


def _root(chain: ast.expr) -> ast.expr:
    """The model of `model.eval().cuda()`."""
    while isinstance(chain, ast.Call) and isinstance(chain.func, ast.Attribute) and chain.func.attr in MOVES:
        chain = chain.func.value
    return chain


def _ready(source: Source) -> list[ast.Call]:
    """Where the file puts models into eval() mode, each with what follows in the chain; not in loops, comprehensions
    and lambdas, nor in a method of the model's."""
    calls = source.calls(["eval"])
    return [_chain(source, call) for call in calls if isinstance(call.func, ast.Attribute) and not call.args
            and ast.unparse(call.func.value) != "self" and not _repeats(source, call)]  # fmt: skip


def _pretrained(source: Source) -> list[ast.Call]:
    """Where the file loads pretrained models, which are in eval() mode."""
    calls = source.calls(["from_pretrained"])
    return [_chain(source, call) for call in calls if isinstance(call.func, ast.Attribute)
            and PRETRAINED.search(ast.unparse(call.func.value)) and not _repeats(source, call)]  # fmt: skip


def _chain(source: Source, call: ast.Call) -> ast.Call:
    """A call with the calls that follow in its chain."""
    outer = [call, *(each for each in source.parents(call) if isinstance(each, ast.Call))]
    *_, whole = (each for each in outer if _root(each) is _root(call))
    return whole
