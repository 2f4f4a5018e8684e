"""Does a timed process print and write into its files what the program does? By lines, numbers within rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gobrrr.guard.model.account import NUMBER, Account
from gobrrr.guard.model.verdict import Check

CLOSE = 1e-3
"""Difference of two numbers over the larger that is rounding. Proposed: float32 has 1e-6, four printed digits 1e-4."""
AHEAD = 5  # lines that an edit may print beside each of the program's; proposed: a warning, a progress line
LOST = 0.01
"""Share of lines that may be others: labels of samples between two classes (proposed; honest edits of inferences)."""


def differences(ours: Sequence[Account], theirs: Account) -> Iterator[Check]:
    """Lines of the program's that two of its processes agree on and that the candidate does not print or write."""
    yield from _missing("output", "", [each.said for each in ours], theirs.said)
    for name, text in theirs.files.items():
        if known := [each.files[name] for each in ours if name in each.files]:
            yield from _missing("files", f" in {name}", known, text)


def _missing(kind: str, where: str, ours: Sequence[str], theirs: str) -> Iterator[Check]:
    if len(ours) < 2:
        return
    # The last line may be cut, and what a process was ended in is in no other.
    agreed = [same[0] if len(set(same)) == 1 else None for same in zip(*(_lines(text) for text in ours), strict=False)]
    lines = _lines(theirs)
    at = num = 0
    lost: list[tuple[int, str]] = []
    for number, line in enumerate(agreed):
        if at >= len(lines):
            break
        num += 1
        found = next(
            (n for n in range(at, min(len(lines), at + AHEAD)) if line is None or _alike(line, lines[n])), None
        )
        if found is None and line is not None:
            lost.append((number, line))
        at = at + 1 if found is None else found + 1
    if len(lost) > max(1, LOST * num):
        said = f"{len(lost)} of {num} lines{where} are others, the first is line {lost[0][0] + 1}: {lost[0][1][:60]!r}"
        yield Check(f"timed {kind}", "changed", said, kind=kind)


def _lines(text: str) -> list[str]:
    return text.split("\n")[:-1]


def _alike(one: str, other: str) -> bool:
    """The same words, whole numbers and, within rounding, others."""
    if one == other:
        return True
    first, second = NUMBER.findall(one), NUMBER.findall(other)
    if NUMBER.sub("#", one) != NUMBER.sub("#", other) or len(first) != len(second):
        return False
    return all(a == b or ("." in a + b and abs(float(a) - float(b)) <= CLOSE * max(abs(float(a)), abs(float(b))))
               for a, b in zip(first, second, strict=True))  # fmt: skip
