"""Where in the user's source something is written: a call by name, or the line that adds to a container."""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

MAX_SOURCE = 4 << 20  # bytes of a file that is parsed; proposed: bounds the pause; parse time per MB would settle it
_ADDERS = frozenset(
    ("append", "add", "extend", "appendleft", "extendleft", "setdefault", "update", "insert", "__setitem__")
)


@functools.lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """The syntax tree of a file; None of what is no Python, too long, or not there."""
    try:
        path = Path(file)
        return _parse(path.read_bytes()) if path.stat().st_size <= MAX_SOURCE else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _parse(source: bytes) -> ast.Module:
    """The tree, without the warnings that the program's own compilation has given: '\\d' in a string is told again by
    every parse. catch_warnings would make the program's own warnings come twice; the parser holds the interpreter,
    so nobody else can warn meanwhile."""
    shown = getattr(warnings, "_showwarnmsg", None)
    if shown is None:
        return ast.parse(source)
    warnings._showwarnmsg = lambda _: None  # type: ignore[attr-defined]
    try:
        return ast.parse(source)
    finally:
        warnings._showwarnmsg = shown  # type: ignore[attr-defined]


def last_name(node: ast.expr) -> str:
    """AdamW of torch.optim.AdamW; empty where it has no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _calls(file: str) -> Iterator[ast.Call]:
    tree = tree_of(file)
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else iter(())


def call_line(files: list[str], names: tuple[str, ...]) -> dict[str, Any] | None:
    """The last line of the first of the user's files that calls one of `names` (as function or method)."""
    return _last_call(files, lambda call: call.lineno if last_name(call.func) in names else None)


def argument_lines(files: list[str], names: tuple[str, ...]) -> dict[str, int]:
    """The line of each keyword argument that the last call of one of `names` is given, in the first file with one."""
    for file in files:
        made = [call for call in _calls(file) if last_name(call.func) in names]
        if made:
            last = max(made, key=lambda call: call.lineno)
            return {each.arg: each.value.lineno for each in last.keywords if each.arg}
    return {}


def argument_line(files: list[str], name: str, value: object) -> dict[str, Any] | None:
    """The last line of the first of the user's files that gives any call the argument `name=value`, a constant."""

    def given(call: ast.Call) -> int | None:
        said = (each.value for each in call.keywords if each.arg == name)
        return next((node.lineno for node in said if isinstance(node, ast.Constant) and node.value == value), None)

    return _last_call(files, given)


def _last_call(files: list[str], line: Callable[[ast.Call], int | None]) -> dict[str, Any] | None:
    for file in files:
        lines = [found for call in _calls(file) if (found := line(call)) is not None]
        if lines:
            return {"file": file, "line": max(lines), "function": ""}
    return None


def collect_lines(files: list[str]) -> list[tuple[str, int]]:
    """(file, line) of every call of gc.collect() in the user's files, under whatever name gc is imported there: a
    method `collect` of another object is none."""
    named = {file: _names_of_collect(file) for file in files}
    return [(file, call.lineno) for file in files for call in _calls(file) if _dotted(call.func) in named[file]]


def collecting_around(frame: FrameType | None, is_user: Callable[[str], bool]) -> dict[str, Any] | None:
    """The innermost line that calls gc.collect() in the functions of libraries that `frame` was called from."""
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if "collect" in code.co_names and not is_user(code.co_filename):
            of_it = {line for _, _, line in code.co_lines()}
            for file, line in collect_lines([code.co_filename]):
                if line in of_it:
                    return {"file": file, "line": line, "function": code.co_name}
    return None


def _names_of_collect(file: str) -> set[str]:
    names: set[str] = set()
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            names |= {f"{each.asname or each.name}.collect" for each in node.names if each.name == "gc"}
        elif isinstance(node, ast.ImportFrom) and node.module == "gc":
            names |= {each.asname or each.name for each in node.names if each.name == "collect"}
    return names


def _dotted(node: ast.expr) -> str:
    """'gc.collect', 'collect'; empty for what is more than a name and an attribute."""
    if isinstance(node, ast.Attribute):
        return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else ""
    return last_name(node)


def growth_line(file: str, name: str) -> dict[str, Any] | None:
    """The line that adds to the container `name`: x.append(...), x += ..., x[...] = ..., x = x + ... Of several the
    first one in a loop, or in a function, which a loop may call."""
    tree = tree_of(file)
    found = sorted(_growths(tree, name, False)) if tree is not None else []
    return {"file": file, "line": found[0][1], "function": ""} if found else None


def _growths(tree: ast.AST, name: str, repeated: bool) -> Iterator[tuple[bool, int]]:
    """(runs once only, line) of every node that adds to the container."""
    nodes = [(tree, repeated)]
    while nodes:
        node, again = nodes.pop()
        if _adds(node, name):
            yield not again, getattr(node, "lineno", 0)
        again = again or isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef))
        nodes += [(child, again) for child in ast.iter_child_nodes(node)]


def _adds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _ADDERS and _container(node.func.value) == name
    if isinstance(node, ast.AugAssign):
        return _container(node.target) == name
    if not isinstance(node, ast.Assign):
        return False
    joined = isinstance(node.value, ast.BinOp) and last_name(node.value.left) == name
    return any(
        joined if last_name(target) == name else isinstance(target, ast.Subscript) and _container(target) == name
        for target in node.targets
    )


def _container(node: ast.expr) -> str:
    """The name of what is added to: x of x[key], of x[a][b] and of self.x."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return last_name(node)
