"""Which lines of the user's source make the bytes of pictures floats and scale them, and where a picture is resized
that was resized before.

What NumPy and torch compute at a line has no frame of its own: the sampler sees the line, and not what it does.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gobrrr.capture.source.statements import last_name, tree_of
from gobrrr.capture.source.user_code import UserFiles

_USER = UserFiles()
MOST = 64
"""Files, lines and chains that are noted; proposed: bounds the pause; programs with more would settle it."""
_LEVELS = frozenset({255.0, 256.0, 127.5, 128.0})
_FLOAT = frozenset({"float32", "float", "float64", "float16", "bfloat16", "half", "FloatTensor"})
_SCALING = frozenset({"div", "div_", "true_divide", "divide", "mul", "mul_", "multiply", "sub", "sub_", "subtract"})
_WHOLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Lambda)
_CHEAP = _SCALING | {
    "float", "to", "type", "astype", "float32", "FloatTensor", "from_numpy", "tensor", "as_tensor", "asarray", "array",
    "ascontiguousarray", "contiguous", "copy", "clone", "permute", "transpose", "moveaxis", "view", "reshape",
    "unsqueeze", "squeeze", "expand_dims", "numpy", "open", "convert", "resize", "thumbnail", "crop", "half", "item",
}  # fmt: skip
"""Calls that may stand beside it: as cheap as the conversion or part of it, or of Pillow, which has frames of its
own."""


def found(files: list[str], loaders: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return recording.facts.PictureFacts of these files and of all of the user's that are imported from the folders of
    the loaders' datasets: code that workers alone run is unknown to the main process. Empty without a loader."""
    spans = [loader.get("dataset_span") for loader in loaders]
    if not spans:
        return {}
    folders = [str(Path(span["file"]).parent) for span in spans if span]
    every = list(dict.fromkeys([*files, *_imported(folders)]))[:MOST]
    floats = [_span(file, line) for file in every for line in _lines(file)[0]]
    linked = [[_span(file, line) for line in links] for file in every for links in _lines(file)[1]]
    return {"floats": floats[:MOST], "chains": linked[:MOST]}


def _span(file: str, line: int) -> dict[str, Any]:
    return {"file": file, "line": line, "function": ""}


@functools.lru_cache(MOST)
def _lines(file: str) -> tuple[list[int], list[Links]]:
    """Lines that make floats, and chains. A process with many sessions, as a notebook has, asks again in each."""
    tree = tree_of(file)
    return float_lines(tree), chains(tree)


def _imported(folders: list[str]) -> Iterator[str]:
    roots = tuple({str(Path(folder).resolve()) + os.sep for folder in folders})
    for module in list(sys.modules.values()):
        # Not getattr: a lazy module would load, and a module's own __getattr__ would run.
        file = vars(module).get("__file__") if type(module) is ModuleType else None
        if isinstance(file, str) and file.startswith(roots) and _USER.is_user(file):
            yield file


def float_lines(tree: ast.Module | None) -> list[int]:
    """Lines that convert to floats or scale, where any of the file divides by the 255 levels of a byte; not those that
    call what may take longer than that."""
    if tree is None:
        return []
    given = [node for node in tree.body if isinstance(node, ast.Assign) and _level(node.value, set())]
    levels = {last_name(target) for node in given for target in node.targets} - {""}  # names of such a number
    if not any(_by_levels(node, levels) for node in ast.walk(tree)):
        return []
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _WHOLE) and _makes_floats(node):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sorted(lines)


def _makes_floats(statement: ast.AST) -> bool:
    nodes = list(ast.walk(statement))
    return any(_converts(node) or _scales(node) for node in nodes) and not any(_does_more(node) for node in nodes)


def _does_more(node: ast.AST) -> bool:
    """A call of unknown cost that may have no frame: cv2.imread(), np.rot90(). Functions and methods of the user's own
    have lines of their own."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    own = isinstance(node.func.value, ast.Name) and node.func.value.id in ("self", "cls")
    library = isinstance(node.func.value, ast.Name) and node.func.value.id in ("cv2", "simplejpeg", "F", "TF")
    return library or not (own or node.func.attr in _CHEAP)


def _level(node: ast.expr, levels: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return (
            isinstance(node.value, (int, float)) and not isinstance(node.value, bool) and float(node.value) in _LEVELS
        )
    return isinstance(node, ast.Name) and node.id in levels


def _by_levels(node: ast.AST, levels: set[str]) -> bool:
    """x / 255, x /= 255, x * (1 / 255), x.div(255)."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div) and _level(node.right, levels)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Div) and _level(node.value, levels)
    return isinstance(node, ast.Call) and last_name(node.func) in _SCALING and any(_level(a, levels) for a in node.args)


def _converts(node: ast.AST) -> bool:
    """x.float(), x.astype(np.float32), x.to(torch.float32), np.asarray(x, dtype="float32"), np.float32(x)."""
    if not isinstance(node, ast.Call):
        return False
    name, given = last_name(node.func), [*node.args, *(each.value for each in node.keywords)]
    if name in ("float32", "FloatTensor") or (name == "float" and isinstance(node.func, ast.Attribute)):
        return True
    dtypes = {each.value if isinstance(each, ast.Constant) else last_name(each) for each in given}
    return name in ("astype", "to", "type", "asarray", "array", "tensor", "as_tensor") and bool(dtypes & _FLOAT)


def _scales(node: ast.AST) -> bool:
    """x / y and (x - y) / z; x -= mean, x /= std."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, (ast.Sub, ast.Div, ast.Mult))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SCALING


Links = tuple[int, ...]
"""Lines of the resizes that a value has gone through, the first one first."""
RESIZES = frozenset({"resize", "thumbnail", "interpolate"})
LONGEST = 8  # resizes kept of a chain; proposed: longer ones are loops; chains in real programs would settle it
_ALIASES = frozenset({"cv2", "F", "TF", "functional", "nn", "torch", "transforms", "tf"})


def chains(tree: ast.Module | None) -> list[Links]:
    """Lines of each chain of two resizes or more that a picture goes through one after the other; of a chain and a part
    of it the chain. Two crops of one picture are none, nor are the arms of an `if`."""
    if tree is None:
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    flow = Flow()
    for _ in range(2):  # a function may be defined behind the one that calls it
        for function in functions:
            flow.function(function)
    found = {links for links in flow.seen if len(set(links)) > 1}
    return sorted(one for one in found if not any(one != other and set(one) <= set(other) for other in found))


class Flow:
    """Chains that names hold, statement by statement."""

    def __init__(self) -> None:
        self.returned: dict[str, Links] = {}
        self.seen: set[Links] = set()
        self._names: dict[str, Links] = {}

    def function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Read one function."""
        self._names = {}
        returned = _longest([self.returned.get(function.name, ()), self._body(function.body)])
        if returned:
            self.returned[function.name] = returned

    def _body(self, body: Sequence[ast.stmt]) -> Links:
        """Return the longest chain that a body returns."""
        return _longest([self._statement(statement) for statement in body])

    def _statement(self, statement: ast.stmt) -> Links:
        if isinstance(statement, ast.Return):
            return self._value(statement.value)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            links = self._value(statement.value)
            self._names.update({name: links for target in targets if (name := last_name(target))})
            return ()
        if isinstance(statement, ast.Expr):
            value, links = statement.value, self._value(statement.value)
            # picture.thumbnail(...) changes what has the name.
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "thumbnail":
                self._names[last_name(value.func.value)] = links
            return ()
        return self._branches(statement)

    def _branches(self, statement: ast.stmt) -> Links:
        """Arms are read apart; what a name holds behind them is the longest."""
        before, ends, returned = dict(self._names), [], []
        arms: list[list[ast.stmt]] = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
        arms += [handler.body for handler in getattr(statement, "handlers", [])]
        arms += [case.body for case in getattr(statement, "cases", [])]
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return ()
        for arm in arms:
            self._names = dict(before)
            returned.append(self._body(arm))
            ends.append(self._names)
        names = {name for end in ends for name in end}
        self._names = {name: _longest([end.get(name, ()) for end in ends]) for name in names}
        return _longest(returned)

    def _value(self, node: ast.expr | None) -> Links:
        if node is None:
            return ()
        if isinstance(node, ast.Name):
            return self._names.get(node.id, ())
        if isinstance(node, ast.IfExp):
            return _longest([self._value(node.body), self._value(node.orelse)])
        if not isinstance(node, ast.Call):
            return _longest([self._value(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)])
        given = _longest([self._value(each) for each in _subjects(node)])
        name = last_name(node.func)
        if name not in RESIZES:
            inside = self.returned.get(name, ())
            return self._linked(given, inside) if inside else given
        return self._linked(given, (node.func.end_lineno or node.lineno,))

    def _linked(self, before: Links, behind: Links) -> Links:
        links = (before + behind)[:LONGEST]
        self.seen.add(links)
        return links


def _subjects(call: ast.Call) -> Iterable[ast.expr]:
    """Return the object a call is made on and its arguments; of a module's function the arguments, of a resize the
    picture."""
    method = isinstance(call.func, ast.Attribute) and last_name(call.func.value) not in _ALIASES
    receiver = [call.func.value] if isinstance(call.func, ast.Attribute) and method else []
    arguments = [*call.args, *(each.value for each in call.keywords)]
    if last_name(call.func) in RESIZES:
        return receiver or arguments[:1]
    return [*receiver, *arguments]


def _longest(every: Sequence[Links]) -> Links:
    return max(every, key=len, default=())
