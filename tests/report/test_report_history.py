"""What each step of a run was: the warm-up, windows, slow ones; and long runs thinned without losing a slow step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gobrrr.recording.model.steps import LoopSteps, Step
from gobrrr.report.timeline import timeline as history
from gobrrr.report.timeline.timeline import step_times


def recording(walls: list[int], offline: bool = False, **marked: dict[int, object]) -> SimpleNamespace:
    """A run whose steps took so many ns; `marked`: fields of Step by the step's index."""
    steps = []
    for i, wall in enumerate(walls):
        fields = {name: values[i] for name, values in marked.items() if i in values}
        steps.append(Step(**{"start": 0, "end": wall, "window": 0, **fields}))  # type: ignore[arg-type]
    return SimpleNamespace(main=LoopSteps(1, 0, tuple(steps)), offline=offline)


def test_every_step_says_what_it_was() -> None:
    run = recording([900, 400, *[100] * 6, 160, 140], window={4: 1}, settling={5: True}, rests={6: True, 8: True})
    told = step_times(run)  # type: ignore[arg-type]
    kinds = ["warm-up", "warm-up", "plain", "plain", "window", "other", "plain", "plain", "slow", "plain"]
    assert [step.kind for step in told] == kinds
    assert [step.number for step in told] == list(range(1, 11)) and told[0].ns == 900


def test_of_a_long_run_every_nth_is_kept_and_every_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_STEPS", 10)
    told = step_times(recording([100] * 53 + [900] + [100] * 46))  # type: ignore[arg-type]
    assert [step.number for step in told] == sorted([*range(1, 101, 10), 54])
    assert [step.number for step in told if step.kind == "slow"] == [54]


def test_a_trace_has_no_steps_to_draw() -> None:
    assert step_times(recording([100] * 5, offline=True)) == ()  # type: ignore[arg-type]
    assert step_times(SimpleNamespace(main=None, offline=False)) == ()  # type: ignore[arg-type]
