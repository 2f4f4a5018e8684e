"""What takes long says so on a terminal, in whole lines, and elsewhere nothing."""

from __future__ import annotations

import io
import threading

import pytest

from gobrrr.report.text.progress import Patience, counted


class Terminal(io.StringIO):
    """Tells when so many lines have been said."""

    def __init__(self, lines: int = 1, tty: bool = True) -> None:
        super().__init__()
        self.enough, self._lines, self._tty = threading.Event(), lines, tty

    def isatty(self) -> bool:
        return self._tty

    def flush(self) -> None:
        if self.getvalue().count("\n") >= self._lines:
            self.enough.set()


def test_it_says_what_it_does_and_for_how_long() -> None:
    out = Terminal(3)
    with Patience("reading trace.json", out, first_s=0.0, every_s=0.01) as patience:
        patience.so_far = "3 of 8"
        assert out.enough.wait(60)
    first, second, *_ = out.getvalue().splitlines()
    assert first in ("gobrrr: reading trace.json ...", "gobrrr: reading trace.json ... (3 of 8)")
    assert second == "gobrrr: reading trace.json ... (3 of 8, 0 s)"
    assert out.getvalue().endswith(")\n"), "whole lines alone"


def test_what_is_over_soon_says_nothing() -> None:
    out = Terminal()
    with Patience("reading", out):
        pass
    assert out.getvalue() == ""


def test_where_there_is_no_terminal_nobody_is_told() -> None:
    out = Terminal(tty=False)
    with Patience("reading", out, first_s=0.0) as patience:
        assert patience._thread is None
    assert out.getvalue() == ""


def test_what_it_says_is_harmless() -> None:
    out = Terminal()
    with Patience("reading \x1b[2Jx\n.json", out, first_s=0.0, every_s=60):
        assert out.enough.wait(60)
    assert out.getvalue() == "gobrrr: reading x .json ...\n"


def test_a_stream_that_nobody_reads_any_more_costs_nothing() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            self.enough.set()
            raise BrokenPipeError

    out = Gone()
    with Patience("reading", out, first_s=0.0, every_s=60):
        assert out.enough.wait(60)


def test_results_pass_through_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    assert list(counted(iter([3, 1, 2]), 3, "reading")) == [3, 1, 2]
