"""Every noun as blocks: text and Markdown say the same of each, and nothing foreign reaches either as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gobrrr.recording.live.now import RUNNING, Now, Part, Process
from gobrrr.report.forms import formats
from gobrrr.report.forms.markdown import rendered as as_markdown
from gobrrr.report.text.page import rendered as as_terminal
from gobrrr.report.told.blocks import Cell, Fact, Sentence, Table
from gobrrr.report.told.checked import Against, checked
from gobrrr.rules.verdict.regression import held_against
from tests.support import page_samples as samples
from tests.support.machine_samples import machine
from tests.support.shown import as_comment, as_text

PROCESS = Process(7, rank=0, state=RUNNING, kind="updates", steps=9, late_ns=2e6, median_ns=1e6, change=0.5,
                  history_ns=(1e6, 2e6), parts=(Part("data wait", 1e6, 0.5), Part("compute", 1e6, 0.5)),
                  rss_bytes=1 << 30, busy_cores=1.0, doubts=("one",))  # fmt: skip
CHECKED = checked(samples.full(), ("critical",), [Against("base.json", held_against(samples.full(), samples.full()))])
NOUNS = {
    "report": samples.full(), "device": samples.on_device(), "receipt": samples.tuned(), "job": samples.job(),
    "comparison": samples.compared(), "machine": machine(doubts=("it varied",)), "check": CHECKED,
    "view": Now("run", "train.py", RUNNING, 1.0, (PROCESS, PROCESS), 1, "gobrrr report run"),
}  # fmt: skip
HOSTILE = "<b>@x|y\x1b[2J*"


def words(text: str) -> list[str]:
    """Numbers with their units, in order."""
    return re.findall(r"\d+\.\d+ (?:ms|us|s|GiB|MiB|%)", text)


@pytest.mark.parametrize("name", NOUNS)
def test_what_the_comment_says_the_blocks_say(name: str) -> None:
    noun: Any = NOUNS[name]
    comment, blocks = as_comment(noun), as_terminal(formats.blocks(noun, formats.PLAIN), width=400)
    assert words(comment) and set(words(comment)) <= set(words(blocks))
    assert comment.startswith(("**", "- ")) and comment.endswith("\n") and "\n\n\n" not in comment


@pytest.mark.parametrize("name", [name for name in NOUNS if name != "machine"])
def test_nothing_foreign_is_shown_as_it_is(name: str) -> None:
    noun: Any = samples.with_texts(NOUNS[name], HOSTILE, frozenset(("schema", "state", "watching", "objective")))
    assert "\x1b" not in as_text(noun)
    bare = re.sub("`[^`]*`", "", as_comment(noun))
    assert "<b>" not in bare and "@x" not in bare and not re.search(r"(?<!\\)\|y", bare) and "\x1b" not in bare


def test_a_block_looks_like_this() -> None:
    rows = ((Cell("mm"), Cell("1.00 ms", 1e6)), (Cell("a|b", code=True), Cell("", 0.0)))
    table = Table("Ops", (("op", False), ("self", True)), rows, folded=True)
    groups = [[Sentence(((("Slow.", "bold"),),))], [Fact("step", ["one"]), Fact("notes", ["two", "three"]), table]]
    assert (
        as_markdown(groups)
        == """\
**Slow.**

- step: one
- notes:
  - two
  - three

<details><summary>Ops</summary>

| op | self |
|---|--:|
| mm | 1.00 ms |
| `a¦b` |  |

</details>
"""
    )
    assert (
        as_terminal(groups)
        == """\
Slow.

step      one
notes     two
          three
op      self
mm   1.00 ms
a|b
"""
    )


def test_what_a_page_alone_has_room_for_is_left_out_and_what_is_drawn_has_no_words() -> None:
    heads = (("remedy", False), ("file", False), ("", False))
    wide = Table("", heads, ((Cell("fused"), Cell("a.json"), Cell("", share=0.5)),), on_page=("file",))
    assert as_markdown([[wide]]) == "| remedy |\n|---|\n| fused |\n"
    assert as_terminal([[wide._replace(label="kept")]]) == f"kept      fused  {'█' * 12}\n"
