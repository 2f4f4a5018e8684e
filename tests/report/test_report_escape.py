"""Nothing that a program or a trace says may move the cursor, hide text, or act in a comment."""

from __future__ import annotations

import re
import shlex
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.system.escape import LIMIT, cleaned_command, code, command_line, markdown, plain

HOSTILE = (
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07after", "after"),
    ("\x1b]52;c;Y2xpcGJvYXJk\x1b\\after", "after"),
    ("\x9b2Jcleared", "cleared"),
    ("\x9d0;title\x9cafter", "after"),
    ("\x1bcreset", "reset"),
    ("\x1b(0lines", "lines"),
    ("\x1b\x1b[31m[31mnested", "[31mnested"),
    ("\x1bP1$qm\x1b\\dcs", "dcs"),
    ("over\rwritten", "over written"),
    ("two\nlines\ttab", "two lines tab"),
    ("back\b\bspace\x00\x7f", "backspace"),
    ("access\u202elevel\u2066admin\u2069", "accessleveladmin"),
    ("zero\u200bwidth\ufeff", "zerowidth"),
    ("line\u2028para\u2029next\x85", "line para next "),
    ("tags\U000e0041\U000e0042", "tags"),
    ("surrogate\udc80", "surrogate?"),
    ("private\ue000", "private"),
    ("unterminated \x1b]0;title stays", "unterminated 0;title stays"),
)


@pytest.mark.parametrize(("hostile", "harmless"), HOSTILE)
def test_hostile_text_becomes_plain(hostile: str, harmless: str) -> None:
    assert plain(hostile) == harmless


@pytest.mark.parametrize(
    "honest", ["train.py:41", "größe = 数据.sum()", "a ≤ b · c → d █", "[bold]not markup[/bold]", ":smile:"]
)
def test_honest_text_stays(honest: str) -> None:
    assert plain(honest) == honest


@given(st.text())
def test_plain_prints_only(text: str) -> None:
    clean = plain(text)
    assert not {unicodedata.category(char) for char in clean} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert plain(clean) == clean
    clean.encode("utf-8")


def test_length_is_limited_also_of_what_is_only_controls() -> None:
    assert len(plain("x" * 10 * LIMIT)) == LIMIT
    assert plain("x" * 10 * LIMIT).endswith("...")
    assert plain("\x1b" * 10_000_000 + "the end") == ""


@pytest.mark.parametrize(
    "payload",
    [
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[click](javascript:x)", "![i](https://evil)",
        "</details>", "`code`", "**bold**", "# heading", "| a | b |", "@someone", "see #12", "GH-12", "https://evil.example",
        "www.evil.example", "~~gone~~", "&lt;b&gt;", "a\n\n# heading", "$x^2$", "1. item\n- item",
    ],
)  # fmt: skip
def test_markdown_escapes(payload: str) -> None:
    escaped = markdown(payload).replace("<!-- -->", "\0")
    bare = re.sub(r"&(?:lt|gt|amp);|\\.", "", escaped)
    assert not re.search(r"[<>`*_\[\]|~$&\n]", bare)
    assert not re.search(r"@\w|#\d|://|www\.|GH-", bare)


def test_markdown_keeps_what_is_harmless() -> None:
    assert markdown("66.5 % of the step (62.0 ms); up to 41.2") == "66.5 % of the step (62.0 ms); up to 41.2"


@given(st.text(alphabet="`|a\n <>@"))
def test_code_spans_close_where_they_should(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence
    inside = span[len(fence[0]) : -len(fence[0])]
    assert span.endswith(fence[0])
    assert fence[0] not in re.findall("`+", inside)
    assert "|" not in span
    assert "\n" not in span


@pytest.mark.parametrize("word", ["a b", "it's", "xo\x1b[", "$(touch x)\x1b'", "\\\x07", "\u202eevil", "é'"])
def test_bash_reads_a_command_as_it_was(word: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"printf %s {command_line([word])}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == word and plain(command_line([word])) == command_line([word])


def test_no_quote_goes_with_what_is_taken_out_of_a_word() -> None:
    assert shlex.split(plain(cleaned_command(["train.py", "xo\x1b[", ";touch x #"]))) == [
        "train.py",
        "xo",
        ";touch x #",
    ]
