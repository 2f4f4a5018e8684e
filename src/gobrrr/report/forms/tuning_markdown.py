"""A tuning as Markdown, small enough for a comment: the gain, what was kept, what was tried. Everything foreign is
escaped."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.report.text.tuning import headspace, label, levels, pay_back, peaks, raced, start_up, verdict, why
from gobrrr.report.told import speedup_text
from gobrrr.system.escape import markdown
from gobrrr.trial.receipt.receipt import Receipt


def to_markdown(receipt: Receipt) -> str:
    """GitHub-flavoured Markdown that ends with a newline."""
    lines = (f"**{markdown(verdict(receipt).plain)}**", "", *_kept(receipt), *_tried(receipt), *_costs(receipt))
    return "\n".join(lines).rstrip("\n") + "\n"


def _kept(receipt: Receipt) -> Iterator[str]:
    rows = levels(receipt)
    if not rows:
        return
    yield f"| remedy | {'peak' if receipt.objective == 'memory' else 'step'} | brought |"
    yield "|---|--:|---|"
    for row in rows:
        yield f"| {markdown(row.name)} | {speedup_text.size(receipt, row.figure)} | {markdown(row.said)} |"
    yield ""


def _tried(receipt: Receipt) -> Iterator[str]:
    lost = raced(receipt, kept=False)
    if not lost:
        return
    yield "<details><summary>Tried and not kept</summary>"
    yield ""
    yield "| remedy | verdict | why |"
    yield "|---|---|---|"
    for trial in lost:
        yield f"| {markdown(' + '.join(trial.remedies))} | {markdown(label(trial))} | {markdown(why(trial))} |"
    yield ""
    yield "</details>"
    yield ""


def _costs(receipt: Receipt) -> Iterator[str]:
    for line in (
        *headspace(receipt.headspace),
        *start_up(receipt),
        peaks(receipt),
        pay_back(receipt, receipt.seconds or 0.0),
        *receipt.notes,
    ):
        if line:
            yield f"- {markdown(line)}"
