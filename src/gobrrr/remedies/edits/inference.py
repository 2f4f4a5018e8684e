"""Edits of programs, or parts of them, that only infer: no graph, layers folded, weights frozen or in 8 bits."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """Put an expression about `{model}` where a model that only infers was put into eval() mode."""

    code: str
    helper: str = ""
    setting: str = ""
    """Statements that stand before it."""
    of: tuple[str, ...] = ()
    """Words of which the program has one, or there is nothing to do."""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Add it, in programs that compute no gradients."""
        if source.program_calls(*TRAINS):
            return []
        if self.of and not any(word in each.text for each in source.program for word in self.of):
            return []
        if (place := _place(source)) is None:
            return []
        setting = [source.before(place.statement, self.setting)] if self.setting else []
        if place.name:
            change = source.behind(place.last, f"{place.name} = {self.code.replace('{model}', place.name)}")
        else:
            change = source.replacing(place.found, self.code.replace("{model}", source.code(place.found)))
        return source.with_helper(self.helper, [*setting, change])


@dataclass(frozen=True)
class StatementsWhereReady:
    """Put statements about `{model}` where a model that only infers is ready, and what they need behind the imports;
    a model that has no name there gets one."""

    code: str
    helper: str = ""
    name: str = "ready_model"

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Add them, in programs that call for no gradients."""
        if source.program_calls(*GRADIENTS) or (place := _place(source)) is None:
            return []
        code = self.code.replace("{model}", place.name or self.name)
        if place.name:
            return source.with_helper(self.helper, [source.behind(place.last, code)])
        named = f"{self.name} = {source.code(place.found)}\n{code}"
        changes = [source.before(place.statement, named), source.replacing(place.found, self.name)]
        return source.with_helper(self.helper, changes)


class _Place(NamedTuple):
    """Expression that gives the model, its statement, the last one that only moves or fills the model, and its name;
    empty where it has none."""

    found: ast.Call
    statement: ast.stmt
    last: ast.stmt
    name: str


def _place(source: Source) -> _Place | None:
    """Where the program's first model is ready, if that is in this file, in a statement that stands alone."""
    for seek in (_ready, _pretrained):
        if any(map(seek, source.program)):
            first = next(each for each in source.program if seek(each))
            found = seek(source)[0] if source is first else None
            break
    else:
        return None
    if found is None or not source.stands_alone(statement := source.statement(found)):
        return None
    kept = statement.targets if isinstance(statement, ast.Assign) and statement.value is found else []
    name = source.code(kept[0] if kept else _root(found))
    named = kept or (isinstance(statement, ast.Expr) and statement.value is found)
    return _Place(found, statement, _last(source, statement, name) if named else statement, name if named else "")


def _last(source: Source, statement: ast.stmt, name: str) -> ast.stmt:
    """The last of the statements behind it in its block that move or fill the model, with none about it between."""
    above = next(source.parents(statement))
    block = next(each for _, each in ast.iter_fields(above) if isinstance(each, list) and statement in each)
    for later in block[block.index(statement) + 1 :]:
        value = getattr(later, "value", None)
        chain = value.func if isinstance(value, ast.Call) else None
        moves = isinstance(chain, ast.Attribute) and chain.attr in (*MOVES, "load_state_dict")
        if moves and source.code(_root(chain.value)) == name and source.stands_alone(later):  # type: ignore[union-attr]
            statement = later
        elif name.partition(".")[0] in names_in(later):
            break
    return statement


def _root(chain: ast.expr) -> ast.expr:
    """The model of `model.eval().cuda()`."""
    while isinstance(chain, ast.Call) and isinstance(chain.func, ast.Attribute) and chain.func.attr in MOVES:
        chain = chain.func.value
    return chain


def _ready(source: Source) -> list[ast.Call]:
    """Where the file puts models into eval() mode, each with what follows in the chain; not in loops, nor in a method
    of the model's."""
    calls = source.calls(["eval"])
    return [_chain(source, call) for call in calls if isinstance(call.func, ast.Attribute) and not call.args
            and ast.unparse(call.func.value) != "self" and not source.loops(call)]  # fmt: skip


def _pretrained(source: Source) -> list[ast.Call]:
    """Where the file loads pretrained models, which are in eval() mode."""
    calls = source.calls(["from_pretrained"])
    return [_chain(source, call) for call in calls if isinstance(call.func, ast.Attribute)
            and PRETRAINED.search(ast.unparse(call.func.value)) and not source.loops(call)]  # fmt: skip


def _chain(source: Source, call: ast.Call) -> ast.Call:
    """A call with the calls that follow in its chain."""
    outer = [call, *(each for each in source.parents(call) if isinstance(each, ast.Call))]
    *_, whole = (each for each in outer if _root(each) is _root(call))
    return whole
