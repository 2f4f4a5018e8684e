"""Where a program begins to train: the statement that makes an optimizer, or a trainer, and the model it gets."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import NamedTuple

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Source

MOST_HELD = 512
"""Files whose places are remembered: each edit asks for them, of every file (more than a program's most files)."""


class Place(NamedTuple):
    """The place before training."""

    model: str
    statement: ast.stmt
    above: int
    """The line above which imports count."""
    bare: bool
    """It trains by a trainer, and may have no torch of its own."""
    made: ast.expr | None = None
    """The call that makes the model in the trainer's arguments, where it has no name there: `model` is free for one."""


@lru_cache(MOST_HELD)
def training(source: Source) -> Place | None:
    """The first statement that makes an optimizer of `NAME.parameters()`, or a trainer of `NAME`, and has a line of its
    own."""
    others = _no_models(source)
    trainers = {name for name in source.imported("transformers", "trl") if name.endswith("Trainer")}
    optimizers, is_free = made_optimizers(source), all(node.id != "model" for node in source.nodes(ast.Name))
    for node in source.nodes(ast.Assign, ast.AnnAssign, ast.Expr):
        given = _given(source, node, trainers)
        made = given if isinstance(given, ast.Call) and is_free else None
        model = given.id if isinstance(given, ast.Name) and given.id not in others else "model" if made else ""
        model = model or _whole(optimizers.get(node))
        if model and not source.beginning(node)[1].strip():
            outermost = max(each.lineno for each in source.tree.body if each.lineno <= node.lineno)
            return Place(model, _above_branches(source, node, model), outermost, bool(trainers), made)
    return None


@lru_cache(MOST_HELD)
def made_optimizers(source: Source) -> dict[ast.stmt, ast.Call]:
    """Statements that keep an optimizer or give it back, and the call that makes it: something of an `optim`, what is
    called an optimizer, or what has its step() called. What else takes parameters (clipping, counting) makes none."""
    made = source.imported("optim")
    # what has its .step() called with nothing given to it: an average of weights is given these
    steps = [call.func for call in source.calls(["step"]) if not call.args and not call.keywords]
    stepped = {last_name(each.value) for each in steps if isinstance(each, ast.Attribute)}
    found: dict[ast.stmt, ast.Call] = {}
    returns = [(node, list[ast.expr](), node.value) for node in source.nodes(ast.Return) if node.value is not None]
    for node, targets, call in (*source.assignments(), *returns):
        if isinstance(call, ast.Call) and parameters(call) is not None:
            *places, name = ast.unparse(call.func).split(".")
            named = "optim" in places or name in made or name.lower().endswith("optimizer")
            if named or stepped & set(map(last_name, targets)):
                found[node] = call
    return found


def parameters(call: ast.Call) -> ast.expr | None:
    """Return what an optimizer is given first."""
    named = [each.value for each in call.keywords if each.arg == "params"]
    return next(iter((*call.args[:1], *named)), None)


def _whole(call: ast.Call | None) -> str:
    """The name whose parameters() an optimizer is given."""
    match parameters(call) if call is not None else None:
        case ast.Call(ast.Attribute(ast.Name(name), "parameters")):
            return name
    return ""


def _given(source: Source, statement: ast.stmt, trainers: set[str]) -> ast.expr | None:
    """Return what the statement gives a trainer as its model, by keyword or first; a call by keyword alone, and where
    nothing is computed before it."""
    for call in source.calls(trainers, within=statement) if trainers else []:
        at = next((n for n, each in enumerate(call.keywords) if each.arg == "model"), None)
        if at is None:
            return call.args[0] if call.args and isinstance(call.args[0], ast.Name) else None
        before = [*call.args, *(each.value for each in call.keywords[:at])]
        plain = all(isinstance(each, (ast.Name, ast.Constant)) for each in before)
        value = call.keywords[at].value
        return value if plain or isinstance(value, ast.Name) else None
    return None


def _no_models(source: Source) -> set[str]:
    """Names of functions, and of what is a text or a configuration: trainers take such in place of a model."""
    found = {node.name for node in source.nodes(ast.FunctionDef)}
    for node in source.nodes(ast.Assign):
        plain = isinstance(node.value, (ast.Constant, ast.JoinedStr, ast.Subscript, ast.Attribute))
        made = isinstance(node.value, ast.Call) and re.search(r"(Config|Arguments)\b", ast.unparse(node.value.func))
        found |= {last_name(target) for target in node.targets} if plain or made else set()
    return found


def _above_branches(source: Source, node: ast.stmt, model: str) -> ast.stmt:
    """The outermost `if` that a statement stands in, which may never be entered, if the model is made above it in the
    same function; else the statement itself."""
    inside = source.scope(node)
    stored = [each for each in source.nodes(ast.Name, within=inside) if isinstance(each.ctx, ast.Store)]
    made = [each.lineno for each in stored if each.id == model and source.scope(each) is inside]
    made += [each.lineno for each in source.nodes(ast.arg, within=inside) if each.arg == model]
    found = node
    for above in source.parents(node):
        if not isinstance(above, ast.If):
            break
        begins, _ = source.beginning(above)
        if any(line < above.lineno for line in made) and source.data[begins : begins + 2] == b"if":  # no elif
            found = above
    return found
