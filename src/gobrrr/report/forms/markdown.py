"""Blocks as GitHub-flavoured Markdown, small enough for a pull-request comment. Everything foreign is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gobrrr.report.told.blocks import Block, Cell, Fact, Groups, Sentence, Table, plainly
from gobrrr.system.escape import code, markdown

CALL = re.compile(r"[A-Za-z_][\w.]*\([^()`]*=[^()`]*\)")
"""A call with keywords, as advice names it: a code span, so that it can be copied without backslashes."""


def rendered(groups: Groups) -> str:
    """Text that ends with a newline: a sentence is bold, a fact an item, a table a table, folded where it says so."""
    blocks = [block for group in groups for block in group]
    lines: list[str] = []
    for at, block in enumerate(blocks):
        lines += _block(block)
        follows = isinstance(block, Fact) and at + 1 < len(blocks) and isinstance(blocks[at + 1], Fact)
        lines += [] if follows else [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Sentence):
        for num, line in enumerate(block.lines):  # one without a style does not stand out
            yield from [""] if num else []
            yield markdown(line) if isinstance(line, str) else f"**{markdown(plainly(line))}**"
    elif isinstance(block, Table):
        yield from _table(block.narrow())
    elif len(block.lines) == 1:
        yield f"- {markdown(block.label)}: {_inline(plainly(block.lines[0]))}"
    else:
        yield f"- {markdown(block.label)}:"
        yield from (f"  - {_inline(plainly(line))}" for line in block.lines)


def _table(table: Table) -> Iterator[str]:
    if table.folded:
        yield f"<details><summary>{markdown(table.title)}</summary>"
        yield ""
    elif table.title:
        yield f"#### {markdown(table.title)}"
        yield ""
    drawn = [not any(row[at].share is not None for row in table.rows) for at in range(len(table.heads))]
    heads = [head for head, stays in zip(table.heads, drawn, strict=True) if stays]
    yield f"| {' | '.join(markdown(head) for head, _ in heads)} |"
    yield f"|{'|'.join('--:' if figures else '---' for _, figures in heads)}|"
    for row in table.rows:
        yield f"| {' | '.join(_cell(cell) for cell, stays in zip(row, drawn, strict=True) if stays)} |"
    if table.folded:
        yield ""
        yield "</details>"


def _cell(cell: Cell) -> str:
    return code(cell.text) if cell.code and cell.text else _inline(cell.text)


def _inline(text: str) -> str:
    texts, calls = CALL.split(text), [code(call) for call in CALL.findall(text)]
    return "".join(markdown(text) + call for text, call in zip(texts, [*calls, ""], strict=True))
