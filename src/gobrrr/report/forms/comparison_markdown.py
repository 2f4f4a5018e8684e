"""A comparison as Markdown, small enough for a comment. Everything foreign is escaped."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr import units
from gobrrr.ledger.compare.comparison import Comparison
from gobrrr.report.text.comparison import accounts, line, named, signed
from gobrrr.system.escape import code, markdown


def to_markdown(found: Comparison, num_ops: int) -> str:
    """GitHub-flavoured Markdown that ends with a newline."""
    lines = (*_head(found), *_accounts(found), *_ops(found, num_ops))
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(found: Comparison) -> Iterator[str]:
    yield f"**{markdown(found.verdict)}**"
    yield ""
    for label, side in (("A", found.a), ("B", found.b)):
        yield f"- {label}: {markdown(line(side))}. {markdown(side.verdict)}".rstrip()
    for label, codes in (("A", found.vanished), ("B", found.appeared)):
        if codes:
            yield f"- only {label}: {markdown(', '.join(codes))}"
    yield ""


def _accounts(found: Comparison) -> Iterator[str]:
    rows = accounts(found)
    if not rows:
        return
    yield "| account | A | B | B - A |"
    yield "|---|--:|--:|--:|"
    for name, a, b in rows:
        told = markdown(name.replace("_", " "))
        yield f"| {told} | {units.duration(a)} | {units.duration(b)} | {signed(b - a)} |"
    yield ""


def _ops(found: Comparison, num_ops: int) -> Iterator[str]:
    rows = found.ops[:num_ops]
    if not rows:
        return
    yield "<details><summary>Ops that differ most</summary>"
    yield ""
    yield "| op | shapes | B - A | a call |"
    yield "|---|---|--:|--:|"
    for op in rows:
        ratio = "" if op.ratio is None else f"{op.ratio:.2f}x"
        yield f"| {markdown(named(op))} | {code(op.shapes) if op.shapes else ''} | {signed(op.delta)} | {ratio} |"
    yield ""
    yield "</details>"
