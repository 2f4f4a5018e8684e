"""Where in the user's source something is written: a call by name, or the line that adds to a container."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_SOURCE = 4 << 20


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        path = Path(file)
        return ast.parse(path.read_bytes()) if path.stat().st_size <= MAX_SOURCE else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _calls(file: str) -> Iterator[ast.Call]:
    tree = _tree(file)
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else iter(())


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def call_line(files: list[str], names: tuple[str, ...]) -> dict[str, Any] | None:
    """The last line in the user's files that calls one of `names` (as function or method)."""
    for file in files:
        lines = [call.lineno for call in _calls(file) if _name(call.func) in names]
        if lines:
            return {"file": file, "line": lines[-1], "function": ""}
    return None


def growth_line(file: str, name: str) -> dict[str, Any] | None:
    """The line that adds to the container `name`: x.append(...), x += ..., x[...] = ..."""
    tree = _tree(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            adds = node.func.attr in ("append", "add", "extend", "appendleft", "setdefault", "update", "insert")
            if adds and _name(node.func.value) == name:
                return {"file": file, "line": node.lineno, "function": ""}
        if isinstance(node, ast.AugAssign) and _name(node.target) == name:
            return {"file": file, "line": node.lineno, "function": ""}
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and _name(target.value) == name:
                    return {"file": file, "line": node.lineno, "function": ""}
    return None
