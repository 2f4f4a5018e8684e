"""Every noun as blocks: text and Markdown say the same of each, and nothing foreign reaches either as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gobrrr import units
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


def test_of_many_process_groups_the_first_four_are_told() -> None:
    one = samples.job().groups[0]
    four, five = (as_text(samples.job(groups=(one,) * num)) for num in (4, 5))
    assert "each with less waiting" not in four and "1 more, each with less waiting" in five
    assert four.count("on the median rank") == five.count("on the median rank") == 4


@pytest.mark.parametrize(
    ("what", "count", "said"),
    [("batch", 5, "5 batches"), ("backward pass", 2, "2 backward passes"), ("note", 1, "1 note"),
     ("update of Adam at a.py:3", 2, "2 updates of Adam at a.py:3"), ("note on the run", 3, "3 notes on the run")],
)  # fmt: skip
def test_several(what: str, count: int, said: str) -> None:
    assert units.several(what, count) == said


def test_a_letter_alone_stands_in_the_gutter_and_a_word_with_a_capital_above_its_lines() -> None:
    told = as_terminal([[Fact("A", ["one"]), Fact("Doubts", ["two"])]])
    assert told == "A         one\n\nDoubts\n -  two\n"
