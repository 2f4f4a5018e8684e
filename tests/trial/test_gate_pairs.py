"""Whole runs in pairs, with runs that are played: when they stop, what they refuse, what cannot be read."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.guard.model.account import Calls, Measured, Row
from gobrrr.guard.model.gate import ACCEPTED, REFUSED, UNDECIDED
from gobrrr.guard.model.verdict import Guarded
from gobrrr.pipeline import sweeping
from gobrrr.report.told import gates as told
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.whole import Ran
from gobrrr.trial.edit.setting import Setting
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.rule import parse

Says = Callable[[bool, int], str]
NOISE = [0.3, -0.2, 0.1, -0.4, 0.25, -0.15, 0.05, 0.35, -0.3, 0.2]
NOISE += [-each for each in NOISE[::-1]]
TAKEN = Measured("acc", "metric:score", 500.0, 605.0, given=(1.5, 100.0), source="a1")


def row(seed: int = 0, rows: int = 100, updates: int = 0, given: float = 50.0, made: float | None = None) -> Row:
    sums = 10.0 + seed if made is None else made
    return Row(0, updates=updates, evaluated=Calls(10, rows, rows), given=(0.0, given), made=(1.0, sums))


class Played:
    """A referee whose arms say what they are told to; `over` after so many runs."""

    def __init__(self, says: Says, rows: Callable[[bool, int], Row] = lambda edited, seed: row(seed), over: int = 99,
                 taken: Callable[[bool], Measured] = lambda edited: TAKEN):  # fmt: skip
        self.says, self.rows, self.over, self.runs = says, rows, over, list[tuple[bool, int]]()
        self.taken = taken

    def is_over(self) -> bool:
        return len(self.runs) >= self.over

    def whole(self, folder: Path, stack: pairs.Stack) -> Any:
        if self.is_over():
            raise ArmError("the time was spent")
        played = self

        class PlayedRun:
            def whole(self, seed: int, seconds: float, measures: object = ()) -> Ran:
                played.runs.append((bool(stack), seed))
                said = played.says(bool(stack), seed)
                return Ran(played.rows(bool(stack), seed), said, folder, 0, {}, said.partition("TRAINS ")[2],
                           [played.taken(bool(stack))])  # fmt: skip

            def end(self) -> None: ...

            kill = end

        return PlayedRun()

    def judged(self, tmp_path: Path, *rules: str, accepted: tuple[str, ...] = (), seconds: float = 1e6) -> Guarded:
        rules = rules or ("accuracy >= -0.5",)
        found, _ = pairs.judged(
            (self.whole, self.is_over), tmp_path, ("a.diff",), list(map(parse, rules)), accepted, seconds
        )
        return found


def noisy(change: float, base: float = 90.0, unit: str = "%") -> Says:
    """Both move with the seed, the edit by a little of its own as well."""
    return lambda edited, seed: (
        f"accuracy: {base + 2 * NOISE[-1 - seed] + edited * (change + NOISE[seed] / 2):.3f}{unit}"
    )


@pytest.mark.parametrize(("change", "verdict", "guard"), [
    (0.0, ACCEPTED, "bounded"), (-0.1, ACCEPTED, "bounded"), (-2.0, REFUSED, "changed"),
    (-0.5, UNDECIDED, "unverified"),
])  # fmt: skip
def test_the_change_decides(tmp_path: Path, change: float, verdict: str, guard: str) -> None:
    played = Played(noisy(change))
    found = played.judged(tmp_path)
    (gate,) = found.gates
    assert (gate.verdict, found.verdict) == (verdict, guard)
    assert gate.seeds == tuple(range(len(played.runs) // 2)) and len(gate.baseline) == len(gate.candidate)
    assert (
        gate.unit == "points" and gate.low is not None and gate.high is not None and gate.low < gate.change < gate.high
    )
    assert (len(gate.seeds) == 20) == (verdict == UNDECIDED)
    for number in range(0, len(played.runs), 2):  # both of one seed, in turn
        (one, seed), (other, same) = played.runs[number : number + 2]
        assert one != other and seed == same and one == bool(seed % 2)


def test_less_is_better_and_shares_of_the_value(tmp_path: Path) -> None:
    def says(edited: bool, seed: int) -> str:
        return f"ppl {12 + NOISE[seed] + edited * 0.02:.4f}"

    (gate,) = Played(says).judged(tmp_path, "ppl <= +1%").gates
    assert gate.verdict == ACCEPTED and gate.unit == "%" and gate.change == pytest.approx(0.166, abs=0.01)
    assert "ppl +0.2 % (" in told.sentence(gate) and told.sentence(gate).endswith("allowed +1 %: accepted")
    assert Played(lambda edited, seed: says(edited, seed) + "9" * edited).judged(tmp_path, "ppl <= +0.1%").red


def test_of_two_gates_the_worse_counts(tmp_path: Path) -> None:
    def says(edited: bool, seed: int) -> str:
        return f"{noisy(0.0)(edited, seed)} loss: {3 + NOISE[seed] / 10 + edited}"

    found = Played(says).judged(tmp_path, "accuracy >= -0.5", "loss <= +1%")
    assert found.red and [gate.verdict for gate in found.gates] == [UNDECIDED, REFUSED]


@pytest.mark.parametrize(("lost", "verdict"), [(0.2, ACCEPTED), (0.5, ACCEPTED), (0.6, REFUSED)])
def test_where_no_seed_changes_anything_one_pair_decides(tmp_path: Path, lost: float, verdict: str) -> None:
    played = Played(lambda edited, _: f"accuracy: {90 - lost * edited}%", lambda edited, _: row(made=11.0 + edited))
    (gate,) = played.judged(tmp_path).gates
    assert gate.exact and gate.verdict == verdict and len(played.runs) == 4
    assert "(" not in told.sentence(gate) and "seeds change nothing" in told.runs(gate)


@pytest.mark.parametrize(("made", "says", "measured"), [
    (25.0, lambda edited, _: "accuracy: 95%", False), (11.5, lambda edited, _: "accuracy: 95%", True),
    (25.0, lambda edited, _: f"accuracy: {95 - edited / 10}%", True),
    (25.0, lambda edited, seed: f"accuracy: {95 - edited * (seed == 1)}%", True),
    (12.5, lambda edited, _: "accuracy: 95%", False),
])  # fmt: skip
def test_a_value_that_stays_while_outputs_are_others_is_no_measure(
    tmp_path: Path, made: float, says: Says, measured: bool
) -> None:
    played = Played(says, lambda edited, _: row(made=made if edited else 11.0))
    with contextlib.nullcontext() if measured else pytest.raises(ArmError, match="both sides, while what models give"):
        assert played.judged(tmp_path).gates


def test_a_measure_of_nothing_may_lose_nothing(tmp_path: Path) -> None:
    """Where the value is 0 any allowance would be all of it; an allowance of 0 is none."""
    for wrong in (0, 1):
        played = Played(lambda edited, _, wrong=wrong: f"errors: {wrong * edited}", lambda edited, _: row(made=11.0))
        (gate,) = played.judged(tmp_path, "errors <= 0").gates
        assert gate.verdict == (REFUSED if wrong else ACCEPTED)


def test_a_function_may_give_the_same_though_outputs_differ() -> None:
    """It is given the loader's batches, without the noise that the program adds behind it."""
    same = [((97.0, False), (97.0, False))] * 4
    found = pairs.told(parse("accuracy >= -0.5", "eval:score"), same, True)
    assert found.exact and found.verdict == ACCEPTED
    with pytest.raises(GobrrrError, match="it measures nothing"):
        pairs.told(parse("accuracy >= -0.5"), same, True)


def test_time_that_is_over_leaves_it_open_and_says_what_would_settle_it(tmp_path: Path) -> None:
    found = Played(noisy(-0.35), over=10).judged(tmp_path)
    (gate,) = found.gates
    assert found.verdict == "unverified" and len(gate.seeds) == 5 and gate.runs_needed
    assert f"about {gate.runs_needed} more runs would settle it" in told.sentence(gate)
    nothing = Played(noisy(0.0), over=1).judged(tmp_path)
    assert nothing.verdict == "unverified" and "--minutes" in nothing.reasons[0]
    short = Played(noisy(0.0))
    assert short.judged(tmp_path, seconds=0.0).verdict == "unverified" and len(short.runs) == 2


@pytest.mark.parametrize(("edit", "accepted", "said"), [
    (row(rows=50), (), "50 of 100 samples given to models"),
    (row(rows=50), ("evaluation",), ""),
    (row(given=60.0), (), "models are given other data"),
    (row(given=50.02), (), ""),  # the same in a lower precision
    (row(given=60.0), ("samples",), ""),
    (row(given=60.0), ("random",), ""),
    (row(updates=3), (), "an optimizer makes 3 updates, in the program as it is 0"),
    (row(rows=101, given=50.5), (), "101 samples given to models, in the program as it is 100"),
    (row(rows=140, given=70.0), ("samples",), ""),  # it calibrates first
])  # fmt: skip
def test_less_work_is_refused_whatever_it_measures(
    tmp_path: Path, edit: Row, accepted: tuple[str, ...], said: str
) -> None:
    assert said in pairs.other_work(row(), edit, accepted) and bool(said) == bool(
        pairs.other_work(row(), edit, accepted)
    )
    found = Played(noisy(0.1), lambda edited, _: edit if edited else row()).judged(tmp_path, accepted=accepted)
    assert found.red == bool(said) and (not said or said in found.reasons[0])


@pytest.mark.parametrize(("taken", "accepted", "said"), [
    (replace(TAKEN, weight=5.0), (), "acc is measured on 5 samples with the edit, on 605 in the program"),
    (replace(TAKEN, weight=5.0), ("samples",), "acc is measured on 5 samples"),
    (replace(TAKEN, weight=5.0), ("evaluation",), ""),
    (replace(TAKEN, given=(2.5, 100.0)), (), "acc is measured on other data"),
    (replace(TAKEN, given=(1.55, 100.0)), (), ""),  # the same in a lower precision
    (replace(TAKEN, given=(2.5, 100.0)), ("random",), ""),
    (replace(TAKEN, source="b2"), ("evaluation", "samples"), "the edit changes the file in which metric:score is"),
])  # fmt: skip
def test_both_sides_measure_the_same_samples_by_the_same_function(
    tmp_path: Path, taken: Measured, accepted: tuple[str, ...], said: str
) -> None:
    played = Played(noisy(0.0), taken=lambda edited: taken if edited else TAKEN)
    if not said:
        assert played.judged(tmp_path, accepted=accepted).green
        return
    with pytest.raises(ArmError, match=f"gate: {said}"):
        played.judged(tmp_path, accepted=accepted)


def test_a_training_is_said_and_makes_as_many_updates(tmp_path: Path) -> None:
    found = Played(noisy(0.0), lambda _, seed: row(seed, updates=60)).judged(tmp_path)
    assert found.green and found.reasons == (pairs.TRAINS,)
    fewer = pairs.other_work(row(updates=60), row(updates=30), ())
    assert fewer == "work: 30 of 60 updates"


@pytest.mark.parametrize(("says", "rows", "said"), [
    (lambda edited, seed: "done", row, "no number is printed"),
    (lambda edited, seed: "accuracy: nan", row, "accuracy is nan"),
    (lambda edited, seed: "accuracy: 0", row, "lets it become anything"),
    (lambda edited, seed: "accuracy: 0.97", row, "lets it become anything"),
    (lambda edited, seed: "accuracy: 97%", row, "though outputs differ"),
])  # fmt: skip
def test_a_gate_that_cannot_be_read_of_the_program_is_an_error(
    tmp_path: Path, says: Says, rows: Callable[[int], Row], said: str
) -> None:
    with pytest.raises(GobrrrError, match=said) as error:
        Played(says, lambda _, seed: rows(seed)).judged(tmp_path)
    assert error.value.exit_code == UNMEASURED


@pytest.mark.parametrize(("edited", "said"), [
    ("done", "gate: no number is printed as accuracy .with the edit"),
    ("accuracy: inf", "gate: accuracy is inf .with the edit"),
    ("accuracy: 0.9", "another unit"), ("accuracy: 97%", "accuracy is 97 whatever the seed"),
])  # fmt: skip
def test_one_that_cannot_be_read_with_the_edit_alone_fails_it(tmp_path: Path, edited: str, said: str) -> None:
    plain = noisy(0.0)
    with pytest.raises(ArmError, match=said):
        Played(lambda with_it, seed: edited if with_it else plain(False, seed)).judged(tmp_path)


def test_values_that_differ_though_nothing_else_does_need_their_pairs(tmp_path: Path) -> None:
    """No sums of outputs, of a GPU say: equal values of two seeds may be chance."""
    played = Played(lambda edited, seed: "accuracy: 90%", lambda _, __: row(made=0.0))
    assert played.judged(tmp_path).gates[0].exact and len(played.runs) == 8


def test_an_evaluation_that_trains_is_no_measure(tmp_path: Path) -> None:
    trains = Played(lambda edited, seed: "accuracy: 0.9 TRAINS weights change around 3 of its 4 calls")
    with pytest.raises(GobrrrError, match="its evaluation trains: weights change") as error:
        trains.judged(tmp_path)
    assert error.value.exit_code == UNMEASURED and len(trains.runs) == 1
    spoiled = Played(lambda edited, seed: f"accuracy: 0.9{' TRAINS x' * edited}")
    with pytest.raises(ArmError, match=r"trains: x \(with the edit\)"):
        spoiled.judged(tmp_path)


def test_values_of_a_setting_share_the_runs_of_the_program_as_it_is(tmp_path: Path) -> None:
    """And what another value trains on is no reason to refuse it."""
    played = Played(noisy(-2.0), lambda edited, seed: row(seed, rows=50 if edited else 100))
    wanted = sweeping.Wanted(Setting("batch", "64", ""), gates=(parse("accuracy >= -0.5"),))
    means, others, said = (played.whole, played.is_over), ["128", "256", "512"], io.StringIO()
    gated, unread = sweeping._gated(means, tmp_path, others[:2], wanted, time.monotonic() + 1e6, said)
    (one,), (other,) = gated.values()
    assert one.verdict == other.verdict == REFUSED and not unread and one.baseline == other.baseline
    assert sum(not edited for edited, _ in played.runs) == len(one.seeds) < sum(edited for edited, _ in played.runs)
    assert said.getvalue().startswith("gobrrr: batch=128: accuracy")
    played.over = 0
    gated, unread = sweeping._gated(means, tmp_path, others[2:], wanted, time.monotonic() + 1e6, said)
    assert (gated, unread) == ({}, {"512": "the time was spent before both had run once (--minutes)"})
