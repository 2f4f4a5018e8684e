"""The live view of a tuning: plain lines as they are read, the terminal's block as it is drawn."""

from __future__ import annotations

import io

from gobrrr.report import live
from gobrrr.trial.receipt import Guarded, Speedup, TrialResult
from gobrrr.trial.search import Plan

ADD = Plan("add", ("malloc",), ("malloc", "fused"), "fused")
WON = TrialResult(remedies=("fused",), verdict="faster", speedup=Speedup(1.24, 1.21, 1.27), guard=Guarded("equivalent"))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_trial_is_two_plain_lines() -> None:
    out, clock = io.StringIO(), Clock()
    with live.PlainLines(out, 600, clock) as view:
        clock.now = 60
        view.began(ADD, 2)
        view.progress(3, 20, None)
        view.ended(WON)
    assert out.getvalue().splitlines() == [
        "2. trying fused on malloc (9.0 min left)",
        "   fused: faster, 1.24x (1.21 to 1.27), numbers equivalent",
    ]


def test_leaving_out_and_confirming_have_words_of_their_own() -> None:
    assert live.doing(Plan("leave-one-out", ("a",), ("a", "b"), "b")) == "leaving out b"
    assert live.doing(Plan("final", (), ("a", "b"))) == "confirming a + b"
    last = TrialResult(remedies=("a", "b"), purpose="final", verdict="faster", speedup=WON.speedup, guard=WON.guard)
    assert live.outcome(last).startswith("all that was kept: faster, 1.24x")


def test_a_red_guard_shows_no_speed_up() -> None:
    red = TrialResult(remedies=("fused",), verdict="faster", speedup=WON.speedup, guard=Guarded("wrong", ("norms",)))
    assert "1.24" not in live.outcome(red) and "wrong" in live.outcome(red)


def test_when_the_time_is_spent_it_says_so() -> None:
    clock = Clock()
    view = live.PlainLines(io.StringIO(), 60, clock)
    clock.now = 61
    assert "spent" in view.left()


def test_the_terminal_shows_the_running_trial_and_keeps_the_finished_ones() -> None:
    out = Terminal()
    view = live.listener(out, 600)
    assert isinstance(view, live.LiveView)
    view.began(ADD, 2)
    view.progress(5, 20, WON.speedup)
    drawn = view._now().plain
    assert "2. trying fused on malloc" in drawn and "5 of 20 blocks" in drawn and "1.24x (1.21 to 1.27)" in drawn
    view.guarding(("fused",))
    assert "checking the numbers" in view._now().plain
    view.ended(WON)
    assert "fused: faster, 1.24x" in out.getvalue()
    assert isinstance(live.listener(io.StringIO(), 1), live.PlainLines)


def test_what_is_left_out_is_told_by_what_it_brings() -> None:
    """The guard judges the whole at the end: a leave-one-out trial has no numbers of its own to doubt."""
    from gobrrr.report.live import outcome
    from gobrrr.trial.receipt import Speedup, TrialResult

    result = TrialResult(
        remedies=("compile", "fused_optimizer"), onto=("compile",), purpose="leave-one-out", verdict="faster",
        speedup=Speedup(1.24, 1.21, 1.27),
    )  # fmt: skip
    assert outcome(result) == "fused_optimizer: with it faster, 1.24x (1.21 to 1.27)"
