"""The line log: what it follows of the program, and that it keeps no end of nothing."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from types import FrameType

import pytest

pytest.importorskip("torch")

from gobrrr.capture.hooks import transform_guard
from gobrrr.capture.source.user_code import UserFiles
from gobrrr.capture.windows import line_log
from gobrrr.capture.windows.line_log import LineLog
from gobrrr.words import CALL, LINE


class Users(UserFiles):
    """This file is the user's program."""

    def is_user(self, filename: str) -> bool:
        return filename == __file__


def counted(program: Callable[[], object]) -> Counter[tuple[int, str]]:
    """Events of each kind by function."""
    log = LineLog(Users(), {})
    log.start(sys._getframe())
    program()
    log.stop(sys._getframe())
    events = log.events.tolist()
    return Counter((op, log.codes[number][1]) for op, number in zip(events[1::4], events[2::4], strict=True)
                   if op in (CALL, LINE))  # fmt: skip


def loops(times: int) -> int:
    total = 0
    for number in range(times):
        total += number
    return total


def helper() -> None:
    pass


def calls(times: int) -> None:
    for _ in range(times):
        helper()


def test_code_that_runs_through_too_many_lines_is_followed_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "MAX_LINES", 50)
    assert counted(lambda: loops(10))[(LINE, "loops")] >= 20
    assert counted(lambda: loops(1000))[(LINE, "loops")] == 51


def test_a_function_that_is_called_all_the_time_is_left_to_its_callers_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "MAX_CALLS", 50)
    assert counted(lambda: calls(10))[(CALL, "helper")] == 10
    found = counted(lambda: calls(1000))
    assert found[(CALL, "helper")] == found[(LINE, "helper")] == 50


def test_lines_that_ran_are_told_from_those_that_did_not() -> None:
    def branch() -> int:
        if not sys:
            return 1
        return 2

    log = LineLog(Users(), {})
    log.start(sys._getframe())
    branch()
    log.stop(sys._getframe())
    first = branch.__code__.co_firstlineno
    assert {line - first for file, line in log.ran() if file == __file__ and line >= first} >= {1, 3}
    assert (__file__, first + 2) not in log.ran()


class Tensor:
    """What a program lets go."""


def lets_go(look: Callable[[FrameType], object]) -> bool:
    """Whether a tensor is gone once its variable is, though somebody has looked at the variables."""
    large = Tensor()
    gone = weakref.ref(large)
    look(sys._getframe())
    del large
    return gone() is None


def test_a_look_at_variables_keeps_nothing_alive() -> None:
    assert lets_go(transform_guard.variables)
    if sys.version_info < (3, 13):
        assert not lets_go(lambda frame: len(frame.f_locals)), "the frame keeps what it gave out"
