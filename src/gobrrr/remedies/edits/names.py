"""Meaning of the names in a file, as far as its text says: what was imported from where, and which data sets are
streams."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_STREAMS = re.compile(r"(?i)(?<!up)(?<!down)stream|iterable|datapipe|webdataset|chaindataset")
"""Words in the names of data sets that are read from one end to the other."""
_SURELY = re.compile(r"(?i)iterabledataset|streamingdataset|iterdatapipe|webdataset|chaindataset")
"""The same in any name: there are other streams, of CUDA or of a logger."""


class Names:
    """Names of one file; a name bound twice, in whatever scope, stands for both."""

    def __init__(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        self._imports: dict[str, set[str]] = {}
        self._stars: set[str] = set()
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._add_import(node)
        self._bound = {name for node in nodes for name in _bound(node)}
        self._values: dict[str, list[ast.expr]] = {}
        for node in nodes:
            for name, value in _assigned(node):
                self._values.setdefault(name, []).append(value)
        self._classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self._has_streams = any(self._names_a_stream(node, _SURELY) for node in nodes)

    def _add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            if alias.name == "*":
                self._stars.add(module.partition(".")[0])
            elif module:
                self._imports.setdefault(alias.asname or alias.name, set()).add(f"{module}.{alias.name}")
            else:
                name = alias.name if alias.asname else alias.name.partition(".")[0]  # `import a.b` binds a
                self._imports.setdefault(alias.asname or name, set()).add(name)

    def origin(self, node: ast.expr) -> str:
        """'torch.optim.AdamW' for what the file may call `optim.AdamW`; a name that nothing binds stands for itself.
        Empty where it cannot be told."""
        if isinstance(node, ast.Attribute):
            owner = self.origin(node.value)
            return owner and f"{owner}.{node.attr}"
        if not isinstance(node, ast.Name) or node.id in self._bound:
            return ""
        found = self._imports.get(node.id) or ({node.id} if self._stars <= {"torch"} else set())
        return next(iter(found)) if len(found) == 1 else ""

    def values(self, node: ast.expr) -> list[ast.expr]:
        """Return what a name is given in the file."""
        return self._values.get(_text(node), [])

    def is_from(self, node: ast.expr, packages: Collection[str], wanted: Collection[str]) -> bool:
        """Whether a function has one of the names that are `wanted`, in one of the packages."""
        *owners, name = self.origin(node).split(".")
        return name in wanted and (not owners or owners[0] in packages)

    def may_be_stream(self, node: ast.expr) -> bool:
        """Whether a data set is a stream by the file's text; in a file that has streams, any that is not known to be
        none."""
        return self._leads_to_a_stream(node, set()) or (self._has_streams and not self._is_indexed(node, set()))

    def _leads_to_a_stream(self, node: ast.AST, seen: set[str]) -> bool:
        for each in ast.walk(node):
            name = _text(each)
            methods, _ = self._of_class(name, set())  # what can only be gone through is a stream, or a sampler
            if self._names_a_stream(each, _STREAMS) or ("__iter__" in methods and "__getitem__" not in methods):
                return True
            if name and name not in seen:
                seen.add(name)
                if any(self._leads_to_a_stream(value, seen) for value in self._values.get(name, ())):
                    return True
        return False

    def _names_a_stream(self, node: ast.AST, names: re.Pattern[str]) -> bool:
        if isinstance(node, ast.keyword):
            plain = isinstance(node.value, ast.Constant) and not node.value.value
            return node.arg == "streaming" and not plain
        name = node.name if isinstance(node, (ast.alias, ast.ClassDef)) else _text(node).rpartition(".")[2]
        if name in self._classes:
            return any(map(names.search, self._of_class(name, set())[1]))
        return names.search(name) is not None

    def _is_indexed(self, node: ast.expr, seen: set[str]) -> bool:
        """Whether all that a name may stand for is made of classes of the file that have __getitem__."""
        name = _text(node.func if isinstance(node, ast.Call) else node)
        if isinstance(node, ast.Call) and name in self._classes:
            return "__getitem__" in self._of_class(name, set())[0]
        values = self._values.get(name, []) if name not in seen else []
        return bool(values) and all(self._is_indexed(value, seen | {name}) for value in values)

    def _of_class(self, name: str, seen: set[str]) -> tuple[set[str], set[str]]:
        """Names of a class's methods, and of itself and all that it inherits from, as far as the file has them."""
        if name not in self._classes or name in seen:
            return set(), {name}
        seen.add(name)
        node = self._classes[name]
        methods, bases = {each.name for each in node.body if isinstance(each, FUNCTIONS)}, {name}
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base  # IterableDataset[Tensor]
            said, origin = _text(base).rpartition(".")[2], self.origin(base).rpartition(".")[2]
            more, above = self._of_class(said, seen)
            methods, bases = methods | more, bases | above | {origin}
        return methods, bases


def _text(node: ast.AST) -> str:
    """A name, with what it is reached through; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        owner = _text(node.value)
        return owner and f"{owner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _bound(node: ast.AST) -> list[str]:
    """Names that a node binds to something that is not imported."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    return [node.arg] if isinstance(node, ast.arg) else []


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they come to stand for: what is assigned, and what a function returns."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            many, value = (ast.Tuple, ast.List), node.value
            parts = target.elts if isinstance(target, many) else [target]
            given = value.elts if isinstance(value, many) and isinstance(target, many) else [value] * len(parts)
            same = len(given) == len(parts) and not any(isinstance(each, ast.Starred) for each in (*parts, *given))
            yield from zip(map(_text, parts), given if same else [value] * len(parts), strict=True)
    if isinstance(node, FUNCTIONS):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return) and inner.value is not None:
                yield node.name, inner.value
