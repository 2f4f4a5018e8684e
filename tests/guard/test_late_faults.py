"""Faults that set in after the warm-up, as those of caches and CUDA graphs do: the guard looks all the way."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr import guard
from gobrrr.guard.model.observation import Observation
from gobrrr.guard.reference.states import States
from gobrrr.guard.reference.watched_steps import TWIN_STEPS, kept_before, whole_steps
from gobrrr.guard.two_runs import observe
from tests.guard.training import STEPS, train

LATE = [
    "gradients doubled", "gradients scaled by 0.001", "a layer's gradient dropped", "a layer's gradient zeroed",
    "loss is NaN", "cached output", "stale batch norm", "frozen dropout", "attention leaks across documents",
    "wrong loss denominator", "weights rounded to bfloat16", "weights drift",
]  # fmt: skip
ONSETS = (1, 5, 17, STEPS - 2)


class Twins:
    """The baseline's runs, made once, all beginning each step from the first one's state."""

    def __init__(self, folder: Path) -> None:
        self.plain = observe(train, states=States(folder, keeps=True))
        self.states = States(folder, keeps=False)
        self.again = observe(train, states=self.states)
        self.true = observe(train, in_double=True, states=self.states)

    def judged(self, **changed: object) -> guard.Guarded:
        candidate = observe(partial(train, **changed), states=self.states)
        return guard.judge(self.plain, candidate, again=self.again, reference=self.true)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return Twins(tmp_path_factory.mktemp("states"))


def test_every_run_but_the_first_begins_its_steps_from_the_baselines_state(twins: Twins) -> None:
    assert {step.begun for step in twins.plain.steps} == {"own"}
    assert {step.begun for run in (twins.again, twins.true) for step in run.steps[1:TWIN_STEPS]} == {"baseline"}
    assert twins.judged().verdict == "exact"


@pytest.mark.parametrize("fault", LATE)
@pytest.mark.parametrize(
    "late", [pytest.param(onset, marks=[pytest.mark.slow] * (0 < place < 3)) for place, onset in enumerate(ONSETS)]
)
def test_a_fault_that_sets_in_late_is_caught(fault: str, late: int, twins: Twins) -> None:
    found = twins.judged(fault=fault, late=late)
    assert not found.green and found.reasons, found


def test_rounding_that_has_drifted_for_thirty_steps_is_let_pass(twins: Twins) -> None:
    def fused(_model: object, optimizer: object) -> None:
        for group in optimizer.param_groups:  # type: ignore[attr-defined]
            group["fused"] = True

    assert twins.judged(changed=fused).verdict in ("exact", "equivalent")


def test_without_states_a_late_fault_is_caught_where_nothing_differed_before() -> None:
    plain, again, true = observe(train), observe(train), observe(train, in_double=True)
    late = observe(partial(train, "weights rounded to bfloat16", late=20))
    assert not guard.judge(plain, late, again=again, reference=true)
    same = [a.updates == b.updates for a, b in zip(plain.steps, late.steps, strict=True)]
    assert all(same[:20]) and not any(same[20:])


def test_large_programs_are_looked_at_by_samples_and_whole_in_the_last_step() -> None:
    assert whole_steps(30, 10, 10) == frozenset(range(30))
    large = whole_steps(30, 400_000_000, 400)
    assert {0, 29} < large and 4 <= len(large) < 8
    assert whole_steps(30, 1 << 40, 400) == whole_steps(30, 1 << 41, 400) and len(whole_steps(30, 1 << 40, 400)) == 4
    assert kept_before(large, 100) == large - {0}
    assert kept_before(large, 1) == {29} and kept_before(large, 0) == frozenset()
    assert 29 in kept_before(frozenset(range(30)), 7) and len(kept_before(frozenset(range(30)), 7)) == 7


def test_samples_catch_what_sets_in_between_the_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.guard.reference.watched_steps.MOST_ELEMENTS", 1)
    plain, again, true = observe(train), observe(train), observe(train, in_double=True)
    whole = {number for number, step in enumerate(plain.steps) if step.whole}
    onset = next(number for number in range(5, 25) if not {number, number + 1} & whole)
    for fault in ("gradients doubled", "frozen dropout", "weights rounded to bfloat16"):
        found = guard.judge(plain, observe(partial(train, fault, late=onset)), again=again, reference=true)
        assert not found.green and len(whole) < 6, fault


def test_a_program_that_diverges_by_itself_is_unverified(tmp_path: Path) -> None:
    def diverges(threads: int = 1) -> None:
        import torch

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
        for _ in range(32):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()

    found = guard.compare(diverges, diverges)
    assert found.verdict == "unverified", found


def test_an_observation_with_states_is_small(twins: Twins, tmp_path: Path) -> None:
    from gobrrr.guard.model import observation

    observation.write(twins.plain, tmp_path / "seen")
    assert observation.read(tmp_path / "seen") == twins.plain
    assert isinstance(twins.plain, Observation) and (tmp_path / "seen").stat().st_size < 30 << 20
