"""The live view of a tuning: plain lines as they are read, the terminal's block as it is drawn."""

from __future__ import annotations

import io

from gobrrr.report.text import tuning_progress
from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.race_round import Heat
from gobrrr.trial.receipt.receipt import Guarded, Speedup, TrialResult

FINAL = Plan((), ("malloc", "fused"))
WON = TrialResult(
    remedies=("malloc", "fused"),
    purpose="final",
    verdict="faster",
    speedup=Speedup(1.24, 1.21, 1.27),
    guard=Guarded("equivalent"),
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def heat(sweeps: int = 4) -> Heat:
    found = Heat(("malloc",), [("malloc", "fused"), ("malloc", "compile")])
    for n in range(sweeps):
        off = 1 + 0.001 * (-1) ** n
        found.feed(
            {("malloc",): [100, 100], ("malloc", "fused"): [80 * off] * 2, ("malloc", "compile"): [99, 101 * off]}
        )
    return found


def test_plain_lines_say_what_runs_what_it_has_shown_and_what_is_left() -> None:
    out, clock = io.StringIO(), Clock()
    with tuning_progress.PlainLines(out, 600, clock) as view:
        clock.now = 60
        view.heat(heat(0))
        clock.now += 1
        view.standing(heat(1))  # too soon for a line
        clock.now += tuning_progress.EVERY_S
        view.standing(heat())
        view.guarding(("malloc", "fused"))
        view.began(FINAL, 2)
        view.progress(3, 20, None)
        view.ended(WON)
    lines = out.getvalue().splitlines()
    assert lines[0] == "racing fused, compile on top of malloc (9.0 min left)"
    assert lines[1].startswith("   so far fused looks faster, and gets no more blocks; compile is open")
    assert lines[2:] == [
        "checking the numbers of malloc + fused (8.7 min left)",
        "confirming malloc + fused in fresh processes (8.7 min left)",
        "   all together: faster, 1.24x (1.21 to 1.27), numbers match",
    ]


def test_what_runs_in_a_race_has_no_figures_since_nobody_checks_its_numbers() -> None:
    assert tuning_progress.standing(heat(1)) == ["fused is open", "compile is open"]
    assert tuning_progress.standing(heat(0)) == []
    won = TrialResult(remedies=("fused",), verdict="faster", speedup=WON.speedup)
    assert tuning_progress.outcome(won) == "fused: faster; numerics not checked yet"


def test_a_red_guard_shows_no_speed_up() -> None:
    red = TrialResult(
        remedies=("fused",), purpose="guard", verdict="faster", speedup=WON.speedup, guard=Guarded("wrong", ("norms",))
    )
    assert "1.24" not in tuning_progress.outcome(red) and "wrong" in tuning_progress.outcome(red)


def test_when_the_time_is_spent_it_says_so() -> None:
    clock = Clock()
    view = tuning_progress.PlainLines(io.StringIO(), 60, clock)
    clock.now = 61
    assert "spent" in view.left()


def test_the_terminal_shows_the_running_trial_and_keeps_the_finished_ones() -> None:
    out = Terminal()
    view = tuning_progress.listener(out, 600)
    assert isinstance(view, tuning_progress.LiveView)
    view.heat(heat(0))
    view.standing(heat())
    drawn = view._now().plain
    assert "racing fused, compile on top of malloc" in drawn and "fused looks faster" in drawn and "min left" in drawn
    assert len(drawn.splitlines()) == 3, "a line for each arm"
    view.began(FINAL, 2)
    view.progress(5, 20, WON.speedup)
    drawn = view._now().plain
    assert "confirming malloc + fused" in drawn and "5 of 20 blocks" in drawn and "1.24x (1.21 to 1.27)" in drawn
    view.guarding(("fused",))
    assert "checking the numbers" in view._now().plain
    view.ended(WON)
    assert "all together: faster, 1.24x" in out.getvalue()
    assert isinstance(tuning_progress.listener(io.StringIO(), 1), tuning_progress.PlainLines)


def test_a_long_stack_is_named_whole_as_it_begins_and_briefly_afterwards() -> None:
    whole = ("trim_padding", "bucketing", "malloc_thresholds", "fused_optimizer")
    heat = Heat((), [whole], seed=0)
    assert tuning_progress.racing(heat) == f"racing {' + '.join(whole)} against the program as it is"
    for _ in range(3):
        heat.feed({(): [1.0, 1.0], whole: [0.5, 0.5]})
    assert tuning_progress.standing(heat)[0].startswith("trim_padding + bucketing + 2 more ")
    assert tuning_progress.brief(whole[:3]) == "trim_padding + bucketing + malloc_thresholds"
    assert tuning_progress.outcome(TrialResult(remedies=whole, purpose="add", verdict="faster")) == (
        "trim_padding + bucketing + 2 more: faster; numerics not checked yet"
    )
