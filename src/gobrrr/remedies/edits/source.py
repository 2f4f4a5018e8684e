"""A file of the program: its text and its tree, and the text with changes made at places of the tree."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.names import FUNCTIONS, Names

Change = tuple[int, int, str]
"""Byte offsets begin and end, and what stands there instead."""
Node = TypeVar("Node", bound=ast.AST)
_MARK = "\ufeff"
"""Mark that some editors of Windows leave before a file's text; in a string it is no Python."""


class Source:
    """One file. Places are those of ast, lines and columns in bytes of UTF-8; only the text at a place changes."""

    def __init__(self, text: str, file: Path = Path()) -> None:
        """Raises SyntaxError for what is not Python."""
        self.text, self.file = text, file
        self.program: Sequence[Source] = (self,)
        """All files of the program that were read, the script first."""
        self._mark = _MARK if text.startswith(_MARK) else ""
        plain = text.removeprefix(_MARK)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's own code
            self.tree = ast.parse(plain)
        self.data = plain.encode()
        ends = re.search(rb"\r\n|\r|\n", self.data)
        self._newline = ends[0] if ends else b"\n"
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    @cached_property
    def names(self) -> Names:
        """Return what the file's names mean."""
        return Names(self.tree)

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: each for each in ast.walk(self.tree) for child in ast.iter_child_nodes(each)}

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Return what a node stands in, the innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def loops(self, node: ast.AST) -> list[ast.stmt]:
        """Loops of its own function that a node stands in, the innermost first."""
        loops = [each for each in self.parents(node) if isinstance(each, (ast.For, ast.While, ast.AsyncFor))]
        return [each for each in loops if self.scope(each) is self.scope(node)]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that an expression is in, or the node itself."""
        return next(each for each in (node, *self.parents(node)) if isinstance(each, ast.stmt))

    def scope(self, node: ast.AST) -> ast.AST:
        """The function or class that a node stands in, or the file."""
        kinds = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
        return next((each for each in self.parents(node) if isinstance(each, kinds)), self.tree)

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        def place(node: ast.AST) -> tuple[int, int]:
            return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)

        return sorted(ast.walk(self.tree), key=place)

    def nodes(self, *kinds: type[Node], within: ast.AST | None = None) -> list[Node]:
        """All nodes of these kinds in the order of the text."""
        inside = set(ast.walk(within)) if within is not None else None
        return [node for node in self._nodes if isinstance(node, kinds) and (inside is None or node in inside)]

    @cached_property
    def _called(self) -> set[str]:
        return {last_name(call.func) for call in self.nodes(ast.Call)}

    def program_calls(self, *names: str) -> bool:
        """Whether any file of the program calls one of these names."""
        return any(not each._called.isdisjoint(names) for each in self.program)

    def calls(self, names: Iterable[str], within: ast.AST | None = None) -> list[ast.Call]:
        """Calls of one of these names, whatever they are reached through (optim.AdamW, torch.optim.AdamW, AdamW)."""
        wanted = set(names)
        return [call for call in self.nodes(ast.Call, within=within) if last_name(call.func) in wanted]

    def calls_from(self, packages: Sequence[str], wanted: Sequence[str]) -> list[ast.Call]:
        """Calls of what these packages have under these names, whatever the file calls it."""
        return [call for call in self.nodes(ast.Call) if self.names.is_from(call.func, packages, wanted)]

    def assignments(self) -> list[tuple[ast.stmt, list[ast.expr], ast.expr]]:
        """Statements that give names something: the statement, the names, and what they get."""
        nodes: list[ast.Assign | ast.AnnAssign] = self.nodes(ast.Assign, ast.AnnAssign)
        names: list[list[ast.expr]] = [
            each.targets if isinstance(each, ast.Assign) else [each.target] for each in nodes
        ]
        return [(node, to, node.value) for node, to in zip(nodes, names, strict=True) if node.value is not None]

    # places in the text

    def at(self, line: int, column: int) -> int:
        """The offset of a line and column."""
        return self._starts[line - 1] + column

    def span(self, node: Any) -> tuple[int, int]:
        """Offsets of a node's begin and end."""
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.keyword) -> str:
        """The node's text."""
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def line_end(self, at: int) -> int:
        """Return where the line ends that a place is in."""
        found = re.compile(rb"[\r\n]").search(self.data, at)
        return found.start() if found else len(self.data)

    def beginning(self, node: ast.stmt) -> tuple[int, str]:
        """Return where a statement begins, and what stands before it in its line."""
        at, line = self.at(node.lineno, node.col_offset), self.at(node.lineno, 0)
        return at, self.data[line:at].decode()

    def stands_alone(self, node: ast.stmt) -> bool:
        """Whether a statement begins and ends lines of its own."""
        _, end = self.span(node)
        behind = self.data[end : self.line_end(end)].strip()
        return not self.beginning(node)[1].strip() and (not behind or behind.startswith(b"#"))

    # changes

    def before(self, node: ast.stmt, code: str) -> Change:
        """Put statements before a statement."""
        at, indent = self.beginning(node)
        return at, at, "".join(f"{each}\n{indent}" for each in code.splitlines())

    def behind(self, node: ast.stmt, code: str) -> Change:
        """Put statements behind a statement that ends a line."""
        at, (_, indent) = self.line_end(self.span(node)[1]), self.beginning(node)
        return at, at, "".join(f"\n{indent}{each}" for each in code.splitlines())

    def replacing(self, node: ast.expr | ast.stmt, code: str) -> Change:
        """Put other text in a node's place."""
        return *self.span(node), code

    def without(self, node: ast.stmt) -> Change:
        """Take out a statement that stands alone, with its lines."""
        end = self.line_end(self.span(node)[1])
        ends = 2 if self.data[end : end + 2] == b"\r\n" else 1
        return self.at(node.lineno, 0), min(end + ends, len(self.data)), ""

    def wrapped(self, node: ast.stmt, header: str) -> list[Change]:
        """Put a statement into the body of another; the lines within its longer strings stay as they are."""
        at, indent = self.beginning(node)
        more = "\t" if indent.startswith("\t") else "    "
        texts = [each for each in ast.walk(node) if isinstance(each, (ast.Constant, ast.JoinedStr))]
        inside = {line for each in texts for line in range(each.lineno + 1, (each.end_lineno or 0) + 1)}
        lines = [line for line in range(node.lineno + 1, (node.end_lineno or 0) + 1) if line not in inside]
        starts = [self.at(line, 0) for line in lines]
        filled = [each for each in starts if self.line_end(each) > each]
        return [(at, at, f"{header}\n{indent}{more}"), *((each, each, more) for each in filled)]

    def with_changes(self, changes: Iterable[Change]) -> str:
        """The text with changes made."""
        data = self.data
        for begin, end, new in sorted(changes, reverse=True):
            data = data[:begin] + new.encode().replace(b"\n", self._newline) + data[end:]
        return self._mark + data.decode()

    # imports

    def imports(self, above: int | None = None) -> list[ast.Import | ast.ImportFrom]:
        """Return the imports at the top level, above a line."""
        found = [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        return [node for node in found if above is None or node.lineno < above]

    def modules(self, above: int | None = None) -> set[str]:
        """Modules that are imported under a name of their own."""
        imports = [node for node in self.imports(above) if isinstance(node, ast.Import)]
        return {alias.asname or alias.name for node in imports for alias in node.names}

    def imported(self, *packages: str) -> set[str]:
        """Names that are imported from a module one of whose parts is so called."""
        nodes = self.nodes(ast.ImportFrom)
        found = [node for node in nodes if set(packages) & set((node.module or "").split("."))]
        return {alias.asname or alias.name for node in found for alias in node.names}

    def behind_imports(self, above: int | None = None) -> int | None:
        """The end of the last one's line; None where another statement begins there."""
        imports = self.imports(above)
        if not imports or any(each.lineno == imports[-1].end_lineno for each in self.tree.body if each != imports[-1]):
            return None
        return self.line_end(self.span(imports[-1])[1])

    def helper(self, code: str, above: int | None = None, bare: bool = True) -> list[Change] | None:
        """Return the changes that put what statements need behind the imports above them; none where it is there
        already, None where it cannot be put there. A script that is `bare` may do without torch's import, as a
        trainer's does."""
        there = {f"import {module}" for module in self.modules(above)}
        code = "\n".join(line for line in code.splitlines() if line not in there)
        at = self.behind_imports(above)
        if not code or at is None:
            return None if code else []
        if "torch" in code and "torch" not in self.modules(above):
            code = code if code.startswith("import torch") else f"import torch\n\n{code}"
            return [(at, at, f"\n{code}")] if bare else None
        imports = all(line.startswith("import ") for line in code.splitlines())
        return [(at, at, f"\n{code}" if imports else f"\n\n{code}")]

    def with_helper(self, code: str, changes: Sequence[Change]) -> list[Change]:
        """Changes, with what they need behind the imports; none where that cannot be put there."""
        helper = self.helper(code)
        return [*helper, *changes] if changes and helper is not None else []


def names_in(node: ast.AST) -> set[str]:
    """Return the names that a node reads or binds."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def bound_in(*nodes: ast.AST) -> list[ast.Name | ast.Attribute | ast.Subscript]:
    """Return the names, attributes and items that nodes bind or delete."""
    every = (
        each for node in nodes for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute, ast.Subscript))
    )
    return [each for each in every if isinstance(each.ctx, (ast.Store, ast.Del))]


def stored_in(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements bind, or change a part of: x, x.y and x[0] are x."""
    return {name for each in bound_in(*body) for name in names_in(each)}


def functions(source: Source) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions and methods of a file."""
    return [*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)]


def may_be_true(value: ast.expr) -> bool:
    """Whether an argument is not known to be false."""
    return not isinstance(value, ast.Constant) or bool(value.value)


def compiles(text: str) -> bool:
    """Whether it is Python."""
    try:
        compile(text.removeprefix(_MARK), "<patched>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
