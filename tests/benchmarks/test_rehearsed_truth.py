"""How the truth of a remedy is measured beside its rehearsal: sweeps over arms that are made up."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import rehearsed_truth
from benchmarks.rehearsed_truth import ENOUGH, FEWEST, MOST, PLAIN, Truth
from gobrrr.trial.arm.arm import ArmError

MS = 1_000_000
FAST, SLOW = ("fast",), ("slow",)


class Arms:
    """A referee whose blocks take what `step_ms` says; an arm in `ends` has no more blocks than that."""

    def __init__(self, step_ms: dict[Any, float], ends: dict[Any, tuple[int, bool]] | None = None) -> None:
        self.step_ms, self.ends = step_ms, ends or {}
        self.ran: list[Any] = []
        self.field = SimpleNamespace(side=lambda stack: SimpleNamespace(block=lambda n, anew: self.block(stack, n)))

    def started(self, stack: Any) -> tuple[float, float]:
        return 1.0, self.step_ms[stack] * MS

    def block(self, stack: Any, steps: int) -> Any:
        most, over = self.ends.get(stack, (10**9, False))
        if self.ran.count(stack) >= most:
            raise ArmError("it died", over=over)
        self.ran.append(stack)
        drift = 1 + 0.01 * len(self.ran)  # the machine gets slower all the time
        return SimpleNamespace(ns=self.step_ms[stack] * MS * steps * drift, walls=[0] * steps)


def swept(monkeypatch: pytest.MonkeyPatch, arms: Arms) -> tuple[dict[Any, list[float]], dict[Any, str]]:
    monkeypatch.setattr(rehearsed_truth, "_cpu_ns", lambda referee, stack: {})
    failed: dict[Any, str] = {}
    live = [stack for stack in arms.step_ms if stack != PLAIN]
    return rehearsed_truth._swept(arms, live, 60.0, failed, alone=False), failed  # type: ignore[arg-type]


def test_a_sweep_there_and_back_is_free_of_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, failed = swept(monkeypatch, Arms({PLAIN: 100, FAST: 80, SLOW: 125}))
    assert not failed and len(logs[FAST]) == len(logs[SLOW]) == MOST
    assert Truth(tuple(logs[FAST])).shares()[0] == pytest.approx(0.2, abs=0.01)
    assert Truth(tuple(logs[SLOW])).figures()["speedup"][0] == pytest.approx(0.8, abs=0.01)


def test_an_arm_that_dies_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, failed = swept(monkeypatch, Arms({PLAIN: 100, FAST: 80, SLOW: 125}, {SLOW: (3, False)}))
    assert failed == {SLOW: "it died"} and len(logs[SLOW]) == 1 and len(logs[FAST]) == MOST
    few = rehearsed_truth._truth(logs[SLOW], failed.get(SLOW, ""))
    assert few.why == "it died" and few.figures()["speedup"] is None


def test_a_program_that_comes_to_its_end_ends_the_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, failed = swept(monkeypatch, Arms({PLAIN: 100, FAST: 80}, {FAST: (2 * ENOUGH, True)}))
    assert not failed and len(logs[FAST]) == ENOUGH


def test_few_sweeps_say_nothing() -> None:
    assert rehearsed_truth._truth([0.1] * (FEWEST - 1), "").figures()["speedup"] is None
    assert rehearsed_truth._truth([math.log(2)] * FEWEST, "").shares()[0] == pytest.approx(0.5)


def test_arms_are_brought_to_the_same_step() -> None:
    made = {PLAIN: 17, FAST: 27, SLOW: 20}
    sides = SimpleNamespace(side=lambda stack: SimpleNamespace(made=made[stack]))
    asked: dict[Any, int] = {}
    referee: Any = SimpleNamespace(field=sides, block=lambda stack, steps: asked.update({stack: steps}))
    rehearsed_truth._brought_level(referee, list(made))
    assert asked == {PLAIN: 10, SLOW: 7}
