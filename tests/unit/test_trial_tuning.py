"""A whole tuning on a fake clock: what is measured, guarded, kept, written and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.rules.model import Saving
from gobrrr.trial.receipt import Guarded, Speedup
from gobrrr.trial.search import Candidate, Plan
from gobrrr.trial.tuning import Journal, Listener, Measured, Tuning

MS = 1e6
STEP = 100 * MS
GAINS = {"fused": 20.0, "malloc": 10.0, "bf16": -50.0, "leaky": 30.0}
CANDIDATES = [Candidate(name, Saving(0.0, abs(gain) * MS, 60 * MS)) for name, gain in GAINS.items()]


class FakeReferee:
    """Steps are as long as the table says; each trial takes a minute. `leaky` spoils the numbers."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.now, self.measured, self.guarded = 0.0, [], []
        self._interrupt_at = interrupt_at

    def measure(self, plan: Plan) -> Measured:
        self.measured.append(plan)
        if len(self.measured) == self._interrupt_at:
            raise KeyboardInterrupt
        self.now += 60
        before, after = (STEP - sum(GAINS[name] for name in stack) * MS for stack in (plan.baseline, plan.candidate))
        ratio = before / after
        verdict = "faster" if ratio > 1.01 else "slower"
        return Measured(verdict=verdict, speedup=Speedup(ratio, ratio, ratio), step_ns=(before, after))

    def guard(self, stack: tuple[str, ...]) -> Guarded:
        self.guarded.append(stack)
        return Guarded("wrong" if "leaky" in stack else "equivalent")


def tuned(tmp_path: Path, referee: FakeReferee, seconds: float = 3600, listener: Listener | None = None) -> Tuning:
    tuning = Tuning(
        CANDIDATES, STEP, referee, Journal(tmp_path / "trials.jsonl"),
        seconds=seconds, clock=lambda: referee.now, listener=listener,
    )  # fmt: skip
    tuning.run()
    return tuning


def test_a_whole_tuning_keeps_what_pays_with_green_numbers(tmp_path: Path) -> None:
    referee = FakeReferee()
    receipt = tuned(tmp_path, referee).receipt()
    assert receipt.complete and receipt.kept == ("fused", "malloc")
    assert receipt.speedup == Speedup(100 / 70, 100 / 70, 100 / 70) and receipt.guard.green
    assert receipt.step_ns == STEP
    by_name = {t.remedies: t for t in receipt.trials if t.purpose == "add"}
    assert by_name[("leaky",)].guard.verdict == "wrong"
    assert by_name[("bf16",)].verdict == "slower"
    assert by_name[("fused",)].realised_ns == pytest.approx(20 * MS)
    assert by_name[("fused",)].predicted == Saving(0.0, 20 * MS, 60 * MS)


def test_only_what_may_be_kept_is_guarded(tmp_path: Path) -> None:
    referee = FakeReferee()
    tuned(tmp_path, referee)
    assert ("bf16",) not in referee.guarded
    assert referee.guarded == [("leaky",), ("fused",), ("fused", "malloc"), ("fused", "malloc")]


def test_the_budget_ends_the_additions_and_the_confirmation_is_still_made(tmp_path: Path) -> None:
    receipt = tuned(tmp_path, FakeReferee(), seconds=150).receipt()
    assert [t.purpose for t in receipt.trials] == ["add", "add", "add", "final"]
    assert any("malloc was not tried: the 2 minutes were spent" in note for note in receipt.notes)


def test_an_interruption_leaves_what_was_finished_and_resuming_measures_only_the_rest(tmp_path: Path) -> None:
    first = FakeReferee(interrupt_at=4)
    cut = tuned(tmp_path, first)
    assert not cut.receipt().complete and len(cut.receipt().trials) == 3
    second = FakeReferee()
    whole = tuned(tmp_path, second)
    assert whole.receipt().complete
    assert whole.receipt().kept == ("fused", "malloc")
    assert len(second.measured) == len(whole.receipt().trials) - 3


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    tuned(tmp_path, FakeReferee())
    file = tmp_path / "trials.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    again = FakeReferee()
    assert tuned(tmp_path, again).receipt().complete
    assert [plan.purpose for plan in again.measured] == ["final"]


def test_the_listener_hears_of_every_trial(tmp_path: Path) -> None:
    heard: list[str] = []

    class Ear(Listener):
        def began(self, plan: Plan, number: int) -> None:
            heard.append(f"{number} {plan.purpose}")

        def ended(self, result) -> None:
            heard.append(result.verdict)

    tuned(tmp_path, FakeReferee(), listener=Ear())
    assert heard[0] == "1 add" and len(heard) % 2 == 0 and "slower" in heard
