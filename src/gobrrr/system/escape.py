"""Strings of programs and traces made harmless: what may reach a terminal, and what may reach Markdown.

File names, function names, source lines and messages come from other people's programs and files. On a terminal they
could move the cursor, recolour, retitle or reverse what is read (CVE-2021-42574); in a comment they could
mention people, link, or close the markup that holds them.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence

LIMIT = 4000
"""Characters of one string that are looked at: no honest message is longer, and the report stays readable."""

_PAYLOAD = r"[^\x00-\x08\x0a-\x1f\x7f-\x9f]*"
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, modes
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_PAYLOAD}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC: titles, clipboard
    r"|\x1b[ -/]*[0-~]"  # two-byte escapes: reset, character sets
)
_QUOTED = "\\'"
_SPACES = frozenset({"Zl", "Zp", "Zs"})
_MARKUP = re.compile(r"([\\`*_\[\]~|$])")
_ALIVE = re.compile(r"(@|#|://|\bwww\.|\bGH-)", re.IGNORECASE)


def plain(text: str, limit: int = LIMIT) -> str:
    """One line that only prints: no ANSI sequence, no control, format, bidirectional or private-use character.

    Every kind of line break and tab becomes one space, a lone surrogate becomes '?'; more than `limit` characters end
    in '...'.
    """
    head = _SEQUENCE.sub("", text[: 4 * limit])
    clean = "".join(map(_printable, head))
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def cleaned_command(words: Sequence[str]) -> str:
    """A command to be shown: what would not print is taken out of each word before it is quoted, so that no quote goes
    with it."""
    return shlex.join(map(plain, words))


def command_line(words: Sequence[str]) -> str:
    """A command as it would be typed, with nothing left out: what does not print, or turns the line round, is shown as
    an escape, so that whoever is asked whether to run it sees all of it, and bash reads the same words again."""
    return " ".join(shlex.quote(word) if all(map(_is_plain, word)) else _escaped(word) for word in words)


def is_plain(text: str) -> bool:
    """Say whether all of it prints, from left to right."""
    return all(map(_is_plain, text))


def _escaped(word: str) -> str:
    """In bash's $'...', in which nothing is expanded; of a byte it takes two digits, of a character four or eight."""
    return f"$'{''.join(char if _is_plain(char) and char not in _QUOTED else _code(char) for char in word)}'"


def _code(char: str) -> str:
    if char in _QUOTED:
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _is_plain(char: str) -> bool:
    return char.isprintable() and unicodedata.bidirectional(char) not in ("R", "AL")


def _printable(char: str) -> str:
    if char.isascii() and char.isprintable():
        return char
    category = unicodedata.category(char)
    if category in _SPACES or char in "\t\n\v\f\r\x85":
        return " "
    if category == "Cs":
        return "?"
    return "" if category[0] == "C" else char


def markdown(text: str) -> str:
    """Text to stand inside a line of Markdown and show as written: no markup, HTML, link, mention or reference."""
    clean = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKUP.sub(r"\\\1", clean)
    # GitHub looks for mentions, references and bare links in the rendered text: only something between breaks them.
    return _ALIVE.sub(lambda found: f"{found[0][0]}<!-- -->{found[0][1:]}", escaped)


def code(text: str) -> str:
    """Text as a Markdown code span whose fence is longer than any run of backticks inside; safe in a table cell."""
    clean = plain(text).strip().replace("|", "\u00a6") or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", clean)), default=0))
    gap = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{fence}{gap}{clean}{gap}{fence}"
