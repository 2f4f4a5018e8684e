"""Where in a file is a picture resized that was resized before? By the names that it goes through."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gobrrr.capture.source.statements import _name

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
            self._names.update({name: links for target in targets if (name := _name(target))})
            return ()
        if isinstance(statement, ast.Expr):
            self._in_place(statement.value)
            return ()
        return self._branches(statement)

    def _in_place(self, value: ast.expr) -> None:
        """picture.thumbnail(...) changes what has the name."""
        links = self._value(value)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "thumbnail":
            self._names[_name(value.func.value)] = links

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
        name = _name(node.func)
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
    method = isinstance(call.func, ast.Attribute) and _name(call.func.value) not in _ALIASES
    receiver = [call.func.value] if isinstance(call.func, ast.Attribute) and method else []
    arguments = [*call.args, *(each.value for each in call.keywords)]
    if _name(call.func) in RESIZES:
        return receiver or arguments[:1]
    return [*receiver, *arguments]


def _longest(every: Sequence[Links]) -> Links:
    return max(every, key=len, default=())
