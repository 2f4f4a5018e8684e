"""The statements of a program's source at the lines that take time: what rules know a slow idiom by."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from gobrrr.capture.source.statements import tree_of
from gobrrr.ledger.model.ledger import Ledger, Statement
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.lines import loop_line

LEAST = 0.005
"""Share of the step from which a line's source is read (proposed: a sixth of what is told, for idioms of six lines)."""
LONGEST = 400  # characters of a statement that are kept; proposed: longer ones are literals


def with_statements(ledger: Ledger, began_ns: int) -> Ledger:
    """The ledger with the source of its lines; of a file that was changed after `began_ns` (Unix time) none."""
    read = cache(_read)
    found = [_statement(span, began_ns, read) for span in _spans(ledger)]
    return replace(ledger, statements=tuple(each for each in found if each is not None))


def _spans(ledger: Ledger) -> Iterator[Span]:
    """The lines that take time, with those that call them and the loop's own, each once; of workers all, whose time is
    per batch."""
    took: dict[tuple[str, int], float] = defaultdict(float)
    spans: dict[tuple[str, int], Span] = {}
    for group in (*ledger.groups, *ledger.device_ops, *ledger.lines, *ledger.workers):
        for span in group.where:
            took[span.place] += group.ns
            spans.setdefault(span.place, span)
    always = {span.place: span for group in ledger.workers for span in group.where}
    always |= {span.place: span for span in loop_line(ledger)}
    spans |= always
    return (span for place, span in spans.items() if took[place] >= LEAST * ledger.wall or place in always)


def _read(file: str) -> tuple[str, dict[str, int]]:
    """(a file as ast.unparse writes it, lines of its statements by their first lines)."""
    tree, places = tree_of(file) or ast.Module([], []), dict[str, int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            text = _header(node).partition("\n")[0].strip()
            places[text] = node.lineno if text not in places else 0
    return ast.unparse(tree), {text: line for text, line in places.items() if line}


def _statement(
    span: Span, began_ns: int, read: Callable[[str], tuple[str, dict[str, int]]]
) -> Statement | None:  # fmt: skip
    """The innermost statement at a line; None where there is none, or its file is another by now."""
    path = Path(span.file)
    try:
        if not path.is_absolute() or path.stat().st_mtime_ns > began_ns:
            return None
    except OSError:
        return None
    tree = tree_of(span.file)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.stmt)) if tree is not None else ()
    around = [node for node in nodes if node.lineno <= span.line <= (node.end_lineno or node.lineno)]
    if not around:
        return None
    *outer, own = sorted(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    function = max((i for i, node in enumerate(outer) if isinstance(node, _SCOPES)), default=-1)
    around_own = tuple(_first_line(node) for node in reversed(outer[function + 1 :]))
    return Statement(span, _first_line(own), around_own, *read(span.file))


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _first_line(node: ast.stmt) -> str:
    header = _header(node)
    return (header.removesuffix(":") if hasattr(node, "body") or hasattr(node, "cases") else header)[:LONGEST]


def _header(node: ast.stmt) -> str:
    """Return a statement as ast.unparse writes it, a compound one without what stands in it."""
    hollow = copy(node)
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        if hasattr(node, name):
            setattr(hollow, name, [])
    return ast.unparse(hollow).lstrip("\n")
