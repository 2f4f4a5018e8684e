"""The page of a code as HTML. The pages are our own and use little of Markdown; everything is escaped first."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from gobrrr.rules.pages import text_of

_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|(https://[^\s)>\]]+[^\s)>\].,;:])")


def page_of(code: str) -> Markup:
    """The page of a code; empty for what is none."""
    return to_html(text_of(code))


def to_html(text: str) -> Markup:
    """Headings, lists, indented code and paragraphs; in them code, bold and addresses. The title is left out."""
    blocks = [_block(block) for block in re.split(r"\n\s*\n|(?<=^#)\n|\n(?=- )|(?<=\n)(?=##)", text) if block.strip()]
    return Markup("\n").join(block for block in blocks if block)


def _block(block: str) -> Markup:
    block = block.strip("\n")
    if block.startswith("# "):
        return Markup()
    if block.startswith("## "):
        head, _, rest = block[3:].partition("\n")
        return Markup("<h4>{}</h4>").format(head) + (_block(rest) if rest.strip() else Markup())
    if block.startswith("    "):
        return Markup("<pre>{}</pre>").format("\n".join(line.removeprefix("    ") for line in block.split("\n")))
    if block.startswith("- "):
        return Markup('<p class="item">{}</p>').format(_inline(block[2:]))
    return Markup("<p>{}</p>").format(_inline(block))


def _inline(text: str) -> Markup:
    parts, at = [], 0
    for found in _INLINE.finditer(text):
        code, bold, address = found.groups()
        parts += [escape(text[at : found.start()])]
        parts += [Markup("<code>{}</code>").format(code)] if code else []
        parts += [Markup("<b>{}</b>").format(bold)] if bold else []
        parts += [Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(address)] if address else []
        at = found.end()
    return Markup().join([*parts, escape(text[at:])])
