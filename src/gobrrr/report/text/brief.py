"""The report in at most 30 lines: the verdict, where the time is, three findings, what to type next."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from gobrrr.report.text import costliest, findings, sections, time_table
from gobrrr.report.text.page import Page, phrase
from gobrrr.rules.verdict.report import Report
from gobrrr.rules.verdict.sentence import is_doubt

LINES = 30  # lines of the short report at most; proposed: one screen; settled by the usual terminal height
NUM_FINDINGS = 3  # findings at most; proposed: their advice still fits; settled by whether readers act on the third
NUM_ACCOUNTS = 4  # accounts at most; proposed: hold most of a step; settled by the rest's share in recordings
FEW = 2
"""Findings, and accounts, where more do not fit."""
CUT_SHORT = "BRR906"
Block = list[RenderableType]
Room = tuple[int, int]
"""Lines of a finding's message, and of its advice."""
ROOMS: tuple[tuple[Room, Room], ...] = (
    ((4, 4), (4, 4)), ((3, 3), (3, 3)), ((3, 3), (2, 2)), ((2, 3), (2, 2)), ((3, 3), (1, 1)), ((2, 2), (1, 1)),
    ((1, 2), (1, 1)), ((1, 1), (1, 1)),
)  # fmt: skip
"""Room of the first finding and of each other: what costs most is cut last, as its point comes late."""
NARROW = 4
"""Index in ROOMS from which layouts with fewer findings and accounts are tried, too."""


def layouts(report: Report, page: Page, num_ops: int = costliest.FIRST) -> Iterator[list[Block]]:
    """Ways to lay it out in blocks, the roomiest first."""
    for rooms in ROOMS:
        yield _groups(report, page, rooms, NUM_ACCOUNTS, NUM_FINDINGS, num_ops)
    for rooms in ROOMS[NARROW:]:
        yield _groups(report, page, rooms, FEW, FEW, num_ops)


def _groups(
    report: Report, page: Page, rooms: tuple[Room, Room], accounts: int, shown: int, num_ops: int
) -> list[Block]:
    """`rooms`: of the first finding, and of each other."""
    told = [f for f in report.findings if not is_doubt(f)]
    found = [part for num, f in enumerate(told[:shown]) for part in findings.in_brief(f, page, *rooms[min(num, 1)])]
    return [
        sections.verdict(report, page),
        [
            *sections.step(report, page, brief=True),
            *time_table.time(report, page, accounts),
            *costliest.ops(report, page, num_ops),
        ],
        found,
        [*_rest(report, page, len(told) - shown), *sections.next_steps(report, page, brief=True)],
    ]


def _rest(report: Report, page: Page, more: int) -> Block:
    """Say what is not shown, and how to see it."""
    doubts = list(dict.fromkeys(page.clean(f.code) for f in report.findings if is_doubt(f)))
    said = [f"{more} more finding{'s' if more > 1 else ''}"] if more > 0 else []
    said += [f"{len(doubts)} doubt{'s' if len(doubts) > 1 else ''} ({', '.join(doubts)})"] if doubts else []
    said += [f"{len(report.loops)} other loop{'s' if len(report.loops) > 1 else ''}"] if report.loops else []
    cut: Block = [page.row("cut short", phrase((page.clean(f.message), ""))) for f in report.findings
                  if f.code == CUT_SHORT]  # fmt: skip
    if not said:
        return cut
    return [*cut, page.row("more", phrase((page.clip(f"{', '.join(said)}: all with -v", page.body), "dim")))]
