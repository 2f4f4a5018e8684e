"""Does the program's source write, while it fetches, into what outlives the sample?

A second look beside fetching itself (fetch_safety.py): for what is written seldom. What is written once is left out
where that can be read: `if self.file is None: self.file = open(...)`, or `self.open()` where that method sets
`self.file`. What has no source is not looked at.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterable, Iterator
from typing import Any

from gobrrr.data.sample_cache.names import named
from gobrrr.remedies.loader.copied_state import closed_over, is_own

MOST = 200
"""Functions that are read."""
METHODS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward")
STATEMENTS = frozenset(
    {"append", "appendleft", "extend", "insert", "remove", "discard", "clear", "add", "update", "sort", "reverse",
     "fill", "put", "itemset", "resize"}
)  # fmt: skip
"""Methods that write; of a tensor some only give something, which a statement would throw away."""
TAKERS = frozenset({"pop", "popleft", "popitem", "setdefault"})
FIRST = frozenset(
    {"setattr", "delattr", "at", "copyto", "place", "putmask", "fill_diagonal", "put_along_axis", "heappush", "heappop",
     "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right", "setitem", "delitem"}
)  # fmt: skip
"""Functions that write into what they are given first: Python's own, heapq's, bisect's, operator's, NumPy's (a ufunc's
at). A method so called of what the data set holds is its own."""
RANDOM = frozenset({"shuffle"})
"""The same of generators, which a data set may hold."""
NO_WRITES = frozenset({"requires_grad_", "share_memory_"})
"""Methods of tensors whose names end as those that write."""


def written(things: Iterable[Any]) -> str:
    """Name the place where one of these writes while samples are fetched, as `Class.method`; empty where none is seen
    to."""
    everything = list(things)
    if held := next(filter(_is_writer, everything), None):
        return f"{held.__name__}()"
    functions = dict.fromkeys(_functions(everything))
    return next((each.__qualname__ for each, missing in list(functions)[:MOST] if _writes(each, missing)), "")


def _is_writer(thing: Any) -> bool:
    """A method of a container, held to be called: `on_error=errors.append`."""
    is_method = isinstance(thing, types.BuiltinMethodType) and not isinstance(thing.__self__, types.ModuleType)
    return is_method and thing.__name__ in STATEMENTS | TAKERS


def _functions(things: list[Any]) -> Iterator[tuple[types.FunctionType, str]]:
    """Yield each function with the attribute that is missing whenever it is called, or nothing."""
    kinds = {base for each in things if isinstance(each, type) for base in each.__mro__}
    methods = {id(value) for kind in kinds for value in vars(kind).values()}
    met = set[type]()
    for thing in things:
        if isinstance(thing, types.FunctionType):
            if is_own(thing) and id(thing) not in methods:
                yield thing, ""
        elif not isinstance(thing, type) and is_own(thing) and type(thing) not in met:
            met.add(type(thing))
            yield from _methods(type(thing))


def _methods(kind: type) -> Iterator[tuple[types.FunctionType, str]]:
    """Yield the methods that fetch, and those of the same class that they name."""
    waiting, met = [(name, "") for name in METHODS], set[tuple[str, str]]()
    while waiting:
        name, missing = waiting.pop()
        if (name, missing) in met:
            continue
        met.add((name, missing))
        for each in filter(is_own, kind.__mro__):
            value = vars(each).get(name)
            value = value.fget if isinstance(value, property) else value
            if isinstance(value, types.FunctionType):
                layers = _layers(value)
                for layer in layers:
                    yield layer, missing
                    tree = tree_of(layer.__code__)
                    guarded = _Reader(tree, layer).guarded(tree) if tree is not None else {}
                    waiting += [(one, guarded.get(one, "")) for one in named(layer.__code__)]
                if len(layers) == 1 and _hides(value, name, kind):
                    break


def _layers(function: types.FunctionType) -> list[types.FunctionType]:
    """Return it and, where a decorator gave it, what it wraps or closes over; of packages' functions none."""
    found = [function]
    for each in found:  # longer as it goes
        inner = [getattr(each, "__wrapped__", None), *closed_over(each)]
        found += [one for one in inner if isinstance(one, types.FunctionType) and is_own(one) and one not in found]
    return found


def _hides(function: types.FunctionType, name: str, kind: type) -> bool:
    """Whether it is the class's own of this name and calls none of the bases': that takes this name or theirs."""
    theirs = {name, "super", *(base.__name__ for base in kind.__mro__[1:])}
    return function.__code__.co_name == name and not theirs.intersection(named(function.__code__))


def _writes(function: types.FunctionType, missing: str) -> bool:
    if "lseek" in function.__code__.co_names:  # the position of a descriptor, which forked processes share
        return True
    tree = tree_of(function.__code__)
    return tree is not None and _Reader(tree, function).finds(tree.body, missing)


def tree_of(code: types.CodeType) -> ast.FunctionDef | None:
    """A function's source; None where there is none, or it is something else."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


class _Reader:
    """Reads one function: its first argument, if it is a method, and names that are not its own outlive a call."""

    def __init__(self, tree: ast.FunctionDef, function: types.FunctionType) -> None:
        code = function.__code__
        method = "." in function.__qualname__.rpartition("<locals>.")[2] and code.co_argcount > 0
        self._me = code.co_varnames[0] if method else ""
        self._globals = function.__globals__
        self._local = {*code.co_varnames, *code.co_cellvars} - {self._me}
        self._local |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and _is_stored(each)}
        imports = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
        self._imported = {(name.asname or name.name).partition(".")[0] for each in imports for name in each.names}
        outer = [each for each in ast.walk(tree) if isinstance(each, ast.Global | ast.Nonlocal)]
        self._outer = {name for each in outer for name in each.names}
        self._local -= self._outer

    def finds(self, body: list[ast.stmt], missing: str) -> bool:
        """`missing`: the attribute that has no value whenever this is called, if there is one."""
        once = self._given(body, missing)
        return any(self._writes(node, once) for node in body)

    def guarded(self, tree: ast.FunctionDef) -> dict[str, str]:
        """Own methods that are named only in calls behind `if self.x is None`, each with x."""
        calls = {
            id(call.func): (call.func.attr, missing)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and (missing := self._missing(node.test))
            for each in node.body
            for call in [each.value if isinstance(each, ast.Assign | ast.Expr) else None]
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and self._is_mine(call.func)
        }
        free = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute) and id(each) not in calls}
        return {name: missing for name, missing in calls.values() if name not in free}

    def _writes(self, node: ast.AST, once: frozenset[int]) -> bool:
        """`once`: nodes that an `if` around them lets run a single time."""
        if isinstance(node, ast.If):  # its body gives a value, and runs as long as there is none
            once |= self._given(node.body, self._missing(node.test))
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name) and _is_stored(node) and id(node) not in once:
            root = _root(node)
            if root in self._outer if isinstance(node, ast.Name) else root == self._me or self._is_outer(root):
                return True
        if isinstance(node, ast.Expr) and self._calls(node.value, STATEMENTS):
            return True
        if self._calls(node, TAKERS) or self._writes_into_given(node):
            return True
        name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if _ends_as_writing(name) and self._calls(node, frozenset({name})):  # a tensor's own method
            return True
        return any(self._writes(each, once) for each in ast.iter_child_nodes(node))

    def _is_outer(self, root: str | None) -> bool:
        """Whether a name stands for what is there after the call."""
        return root is not None and root not in self._local

    def _calls(self, node: ast.AST, names: frozenset[str]) -> bool:
        """A method of something that outlives the call, no function of a module nor a method of the object's own."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names):
            return False
        owner = node.func.value
        root = _root(owner)
        if root is None or root in self._local or isinstance(self._globals.get(root), types.ModuleType):
            return False
        return root != self._me or not isinstance(owner, ast.Name)

    def _writes_into_given(self, node: ast.AST) -> bool:
        """Say whether a call writes into its first argument, by a function that does, or into its `out`."""
        if not isinstance(node, ast.Call):
            return False
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        own = _root(node.func) == self._me and name not in RANDOM
        given = [each.value for each in node.keywords if each.arg in ("out", "dst")]
        writes = name in FIRST | RANDOM or (_ends_as_writing(name) and self._is_function(node.func))
        given += node.args[:1] if not own and writes else []
        given = [part for each in given for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
        return any(self._is_outer(_root(each)) for each in given)

    def _is_function(self, function: ast.AST) -> bool:
        """No method: x.sub_(self.mean) reads what it is given, torch.relu_(self.x) writes there."""
        root = _root(function)
        by_name = isinstance(function, ast.Name) and root not in self._local
        return by_name or root in self._imported or isinstance(self._globals.get(root or ""), types.ModuleType)

    def _given(self, body: list[ast.stmt], missing: str) -> frozenset[int]:
        """Attributes that get a value here, where the one that was missing is among them."""
        targets = [target for each in body if isinstance(each, ast.Assign) for target in each.targets]
        stored = [each for each in targets if isinstance(each, ast.Attribute) and self._is_mine(each)]
        return frozenset(map(id, stored)) if missing in {each.attr for each in stored} else frozenset()

    def _is_mine(self, node: ast.Attribute) -> bool:
        return isinstance(node.value, ast.Name) and node.value.id == self._me

    def _missing(self, test: ast.expr) -> str:
        """x of `self.x is None`, `not self.x` and `not hasattr(self, "x")`."""
        match test:
            case ast.Compare(asked, [ast.Is(), *_], [ast.Constant(None), *_]) | ast.UnaryOp(ast.Not(), asked):
                match asked:
                    case ast.Attribute(attr=name):
                        return name
                    case ast.Call(ast.Name("hasattr"), [_, ast.Constant(name)]):
                        return str(name)
        return ""


def _ends_as_writing(name: str) -> bool:
    """Say whether a name ends as torch's functions and methods that write do."""
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__") and name not in NO_WRITES


def _is_stored(node: ast.Attribute | ast.Subscript | ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _root(node: ast.AST) -> str | None:
    """The name that a chain of attributes and indices begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
