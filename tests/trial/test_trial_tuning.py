"""A whole tuning on a fake clock: what is raced, guarded, confirmed, written and resumed, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobrrr.cli.verbs.tune import OPEN, UNMEASURED, exit_code
from gobrrr.guard.model.verdict import Guarded
from gobrrr.rules.model.finding import Saving
from gobrrr.trial.arm.arm import UNHELD
from gobrrr.trial.arm.live_arms import LATE
from gobrrr.trial.race import race
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.guard_runs import WITHOUT_DROPOUT
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.tuning import Journal, Listener, Tuning
from gobrrr.trial.receipt.receipt import Measured, Speedup
from tests.support.race_clock import MS, FakeReferee, tuned
from tests.support.shown import as_text

GAINS = {"fused": 1.25, "malloc": 1.12, "bf16": 0.7, "leaky": 1.4}
CANDIDATES = [Candidate(name, Saving(0.0, 5 * MS, 10 * MS), risk=int(name == "leaky")) for name in GAINS]


def test_a_whole_tuning_keeps_what_pays_with_green_numbers(tmp_path: Path) -> None:
    referee = FakeReferee(GAINS, red=("leaky",))
    receipt = tuned(referee, CANDIDATES, tmp_path, seconds=600).receipt()
    assert receipt.complete and receipt.kept == ("fused", "malloc") and receipt.guard.green
    assert receipt.speedup is not None and receipt.speedup.median == pytest.approx(1.4, rel=0.03)
    by_name = {t.remedies: t for t in receipt.trials if t.purpose == "add" and not t.onto}
    assert by_name[("bf16",)].verdict == "slower"
    assert by_name[("fused",)].realised_ns == pytest.approx(4 * MS, rel=0.2)  # of three sweeps
    assert by_name[("fused",)].predicted == Saving(0.0, 5 * MS, 10 * MS)
    assert exit_code(receipt) == 0 and not referee.alive


def test_only_the_stack_that_is_recommended_is_guarded_and_its_riskiest_goes_where_it_is_red(tmp_path: Path) -> None:
    referee = FakeReferee(GAINS, red=("leaky",))
    found = tuned(referee, CANDIDATES, tmp_path, seconds=600)
    assert referee.guarded == [("leaky", "fused", "malloc"), ("fused", "malloc")]
    assert referee.milder[0] == referee.guarded[1], "it may be watched beside the first"
    assert referee.measured == [("fused", "malloc")]
    assert [t.remedies for t in found.results if t.purpose == "guard"] == [("leaky", "fused", "malloc")]


def test_nothing_is_kept_whose_numbers_are_red(tmp_path: Path) -> None:
    referee = FakeReferee(GAINS, red=tuple(GAINS))
    receipt = tuned(referee, CANDIDATES, tmp_path, seconds=600).receipt()
    assert receipt.kept == () and receipt.speedup is None and referee.measured == [] and exit_code(receipt) == 0


def test_what_else_leans_is_confirmed_where_the_best_was_red(tmp_path: Path) -> None:
    """One worker leans by more and draws other numbers; a fused update that leans by 1.2 was lost with it."""
    gains = {"worker": 1.3, "fused": 1.2}
    candidates = [Candidate(name, Saving(0.0, 5 * MS, 10 * MS)) for name in gains]
    referee = FakeReferee(gains, red=("worker",), machine={"noise": 0.5})
    receipt = tuned(referee, candidates, tmp_path, seconds=600).receipt()
    assert not any(t.verdict == "faster" for t in receipt.trials if t.purpose == "add"), "nothing is shown in the race"
    assert referee.guarded == [("worker",), ("fused",)] and referee.measured == [("fused",)]


def test_the_race_goes_on_where_all_that_it_showed_was_refused(tmp_path: Path) -> None:
    """A BERT packed looked 1.3 times as fast, which ended the race, and its numbers were others: two of five minutes
    were left, and what brings 1.4 was never looked at."""
    both = [Candidate("leaky", Saving(0.0, 9 * MS, 10 * MS), risk=1), CANDIDATES[0]]
    referee = FakeReferee(GAINS, red=("leaky",), start_s=20, room=1)
    receipt = tuned(referee, both, tmp_path, seconds=140).receipt()
    assert referee.guarded == [("leaky",), ("fused",)] and receipt.complete
    assert receipt.kept == ("fused",) or receipt.likely == ("fused",)
    assert referee.clock() <= 1.1 * 140


@pytest.mark.parametrize("seconds", [130, 150, 170])
def test_arms_that_wait_for_those_that_never_start_still_have_their_time(tmp_path: Path, seconds: float) -> None:
    """Three that could not start took the place of one after the other, and the good one was not confirmed."""
    order = [Candidate(name, Saving(0.0, (9 - n) * MS, 10 * MS)) for n, name in enumerate("abcd")]
    referee = FakeReferee({"a": 1.3}, broken=("b", "c", "d"), start_s=25, room=2)
    assert tuned(referee, order, tmp_path, seconds=seconds).receipt().kept == ("a",)
    assert referee.clock() <= 1.1 * seconds


def test_no_time_to_start_once_more_is_no_program_that_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "POLICY", replace(POLICY, again=1.0))

    class Cut(FakeReferee):
        def start(self, stacks, seconds):
            if stacks and 0.85 * seconds < self._start_s:
                self.machine.now += 0.85 * seconds
                return dict.fromkeys(stacks, f"{LATE} 1 s")
            return super().start(stacks, seconds)

    both = [Candidate("leaky", Saving(0.0, 9 * MS, 10 * MS), risk=1), CANDIDATES[0]]
    for seconds in range(100, 110):
        place = tmp_path / str(seconds)
        place.mkdir()
        found = tuned(Cut(GAINS, red=("leaky",), start_s=20, room=1), both, place, seconds=seconds)
        assert not any("could not be run" in note for note in found.receipt().notes)


def test_what_conflicts_with_the_refused_is_looked_at_after_all(tmp_path: Path) -> None:
    both = [Candidate("leaky", Saving(0.0, 9 * MS, 10 * MS), risk=1, conflicts=frozenset({"fused"})), CANDIDATES[0]]
    referee = FakeReferee(GAINS, red=("leaky",))
    receipt = tuned(referee, both, tmp_path, seconds=600).receipt()
    assert referee.guarded == [("leaky",), ("fused",)] and receipt.kept == ("fused",)
    assert not any("conflicts" in note for note in receipt.notes)


@pytest.mark.parametrize("seconds", [60, 90, 150, 300])
@pytest.mark.parametrize("start_s", [3.0, 12.0])
def test_the_minutes_bound_all_of_it(tmp_path: Path, seconds: float, start_s: float) -> None:
    many = [Candidate(f"r{n}", Saving(0.0, 5 * MS, 10 * MS)) for n in range(12)]
    referee = FakeReferee({c.name: 1.02 for c in many}, start_s=start_s, guard_s=10, machine={"noise": 0.1})
    tuned(referee, many, tmp_path, seconds=seconds)
    assert referee.clock() <= 1.1 * seconds


@pytest.mark.parametrize(("pairs", "kept"), [(1, ()), (3, ("fused",))])
def test_processes_that_start_beside_each_other_leave_time_for_a_verdict(
    tmp_path: Path, pairs: int, kept: Stack
) -> None:
    """Starts of 45 s and a guard of 75, as of an H200's Trainer: 1.52 was left open in 4.2 minutes."""
    referee = FakeReferee({"fused": 1.5}, start_s=45, guard_s=75, pairs=pairs)
    assert tuned(referee, CANDIDATES[:1], tmp_path, seconds=200).kept == kept
    assert referee.clock() <= 1.1 * 200


def test_the_race_leaves_guard_and_confirmation_their_time(tmp_path: Path) -> None:
    many = [Candidate("good", Saving(0.0, 9 * MS, 10 * MS)),
            *(Candidate(f"r{n}", Saving(0.0, 5 * MS, 10 * MS)) for n in range(60))]  # fmt: skip
    referee = FakeReferee({"good": 1.5}, guard_s=15, start_s=8, machine={"noise": 0.05})
    receipt = tuned(referee, many, tmp_path, seconds=180).receipt()
    assert receipt.kept[:1] == ("good",) and any("no time left" in note for note in receipt.notes)


def test_what_only_leans_does_not_end_the_race_for_what_was_not_looked_at(tmp_path: Path) -> None:
    """One remedy at 5 % was not shown, and the pair that matters had 23 s left to start in."""
    gains = {"small": 1.05, "large": 1.6}
    both = [Candidate(name, Saving(0.0, ms * MS, 10 * MS)) for name, ms in (("small", 5), ("large", 1))]
    referee = FakeReferee(gains, start_s=25, guard_s=30, machine={"noise": 0.05}, room=1)
    receipt = tuned(referee, both, tmp_path, seconds=280).receipt()
    assert "large" in receipt.kept or "large" in receipt.likely


@pytest.mark.parametrize(("seconds", "asked"), [(999, ("masks", "buckets")), (75, ("masks",)), (1, ("masks",))])
def test_of_what_leans_together_the_part_is_confirmed_for_which_there_is_time(
    seconds: float, asked: Stack, tmp_path: Path
) -> None:
    """Batches in another order take the guard twice as many runs: of a pair at 1.36 one round of three was made."""
    both = [
        Candidate("masks", Saving(0.0, 5 * MS, 10 * MS)),
        Candidate("buckets", Saving(0.0, 5 * MS, 10 * MS), reorders=True),
    ]
    referee = FakeReferee({}, step_ns=100 * MS)
    tuning = Tuning(both, 100 * MS, referee, Journal(tmp_path / "j"), seconds=seconds, clock=referee.clock)
    tuning._racing._starts = {(): (8.0, 100 * MS), ("masks",): (8.0, 100 * MS), ("buckets",): (8.0, 100 * MS)}
    for name, mean in (("masks", 0.2), ("buckets", 0.15)):
        tuning.race.settle((), (name,), "inconclusive", mean)
        tuning.race.likely[(name,)] = name == "masks"
    stack = tuning.race.best()
    assert stack == ("masks", "buckets")
    assert tuning._proof(("masks",), 1.0) < 75 < tuning._proof(stack, 1.0)
    assert tuning._affordable(stack) == asked


def test_what_leans_far_is_proven_before_others_are_sought(tmp_path: Path) -> None:
    """A training that generates between its steps: guard and rounds take most of the time, and blocks scatter."""
    asked: list[float] = []

    class Slow(FakeReferee):
        def guard(self, stack, milder=()):
            asked.append(self.clock())
            return super().guard(stack, milder)

    others = [Candidate(f"r{n}", Saving(0.0, 30 * MS, 60 * MS)) for n in range(20)]
    referee = Slow({"far": 1.2}, seed=2, step_ns=300 * MS, start_s=15, guard_s=70, room=2,
                   machine={"noise": 0.15, "burst": 0.0})  # fmt: skip
    receipt = tuned(
        referee, [Candidate("far", Saving(0.0, 60 * MS, 99 * MS)), *others], tmp_path, seconds=240
    ).receipt()
    assert not any(trial.verdict == "faster" for trial in receipt.trials if trial.purpose == "add")
    assert asked[0] < 0.6 * 240 - 15, "no other was started"
    assert receipt.kept[:1] == ("far",)


@pytest.mark.parametrize("fields", [{"guard_s": 200}, {"guard_s": 85}])
def test_what_was_not_confirmed_in_time_is_open(tmp_path: Path, fields: dict) -> None:
    referee = FakeReferee({"fused": 1.5}, **fields)
    receipt = tuned(referee, CANDIDATES[:1], tmp_path, seconds=100).receipt()
    assert receipt.kept == () and receipt.likely == ("fused",) and exit_code(receipt) == OPEN
    (said,) = (note for note in receipt.notes if "minutes after the diagnosis would do" in note)
    assert said.startswith("the race took ")


def test_a_red_guard_stands_though_the_time_is_over(tmp_path: Path) -> None:
    """What is likely must not name a stack whose numbers were found wrong."""
    referee = FakeReferee({"fused": 1.5}, guard_s=200, red=("fused",))
    receipt = tuned(referee, CANDIDATES[:1], tmp_path, seconds=100).receipt()
    assert receipt.likely == () and exit_code(receipt) == 0
    assert [(t.purpose, t.guard.verdict) for t in receipt.trials if t.purpose != "add"] == [("guard", "wrong")]


@pytest.mark.parametrize("guard_s", [20, 60])
def test_what_is_likely_is_never_what_was_refused(tmp_path: Path, guard_s: float) -> None:
    """Red on both together; then the rest could not be confirmed, or not even checked."""

    class Unsure(FakeReferee):
        def measure(self, plan, seconds):
            return Measured(verdict="inconclusive", reason="5 starts", speedup=Speedup(1.3, 0.9, 1.6))

    both = [CANDIDATES[0], replace(CANDIDATES[2], risk=9)]
    referee = Unsure({"fused": 1.5, "bf16": 1.3}, red=("bf16",), guard_s=guard_s)
    receipt = tuned(referee, both, tmp_path, seconds=150).receipt()
    assert receipt.likely == ("fused",) and exit_code(receipt) == OPEN


@pytest.mark.parametrize(
    ("found", "likely"), [((0.85, 0.77, 0.95), ()), ((0.99, 0.8, 1.3), ()), ((1.02, 0.9, 1.2), ("fused",))]
)
def test_what_was_slower_in_fresh_processes_is_not_likely_to_be_faster(
    tmp_path: Path, found: tuple[float, float, float], likely: tuple[str, ...]
) -> None:
    class Open(FakeReferee):
        def measure(self, plan, seconds):
            return Measured(verdict="inconclusive", reason="time for 2 of the 3 starts", speedup=Speedup(*found))

    receipt = tuned(Open({"fused": 1.5}), CANDIDATES[:1], tmp_path, seconds=150).receipt()
    assert receipt.likely == likely and exit_code(receipt) == (OPEN if likely else 0)
    assert any("minutes after the diagnosis would do" in note for note in receipt.notes) == bool(likely)


@pytest.mark.parametrize("starts", [POLICY.fewest_rounds, 114])
def test_rounds_that_have_begun_say_how_long_and_nothing_else_does(tmp_path: Path, starts: int) -> None:
    """normflows: "114 would settle it, about 19.6 min", and "3 minutes after the diagnosis would do".
    What a proof takes anyway is no more than was planned for it."""

    class Open(FakeReferee):
        def measure(self, plan, seconds):
            return Measured(verdict="inconclusive", starts_needed=starts, speedup=Speedup(1.1, 0.8, 1.5))

    receipt = tuned(Open({"fused": 1.5}), CANDIDATES[:1], tmp_path, seconds=150).receipt()
    said = any("would do" in note for note in receipt.notes)
    assert receipt.likely == ("fused",) and said == (starts == POLICY.fewest_rounds)


def test_a_pair_that_was_not_ready_leaves_its_members_untried(tmp_path: Path) -> None:
    """compile with bf16 needs longer to come up than there was; compile by itself was never looked at."""

    class Slow(FakeReferee):
        def start(self, stacks, seconds):
            slow = [stack for stack in stacks if stack == ("compile", "bf16_autocast")]
            failed = super().start([stack for stack in stacks if stack not in slow], seconds)
            self.machine.now += 60 if slow else 0.0
            return failed | dict.fromkeys(slow, f"{LATE} 94 s")

    both = [replace(CANDIDATES[0], name=name) for name in ("compile", "bf16_autocast")]
    tuning = tuned(Slow({}, room=2), both, tmp_path, seconds=60)
    assert {each.remedies for each in tuning.results} == {("compile", "bf16_autocast"), ("bf16_autocast",)}
    receipt = tuning.receipt()
    assert (
        receipt.left == ("compile",)
        and "compile was not tried: there was no time left to try and to prove it" in receipt.notes
    )


def test_what_did_not_take_hold_beside_others_was_tried(tmp_path: Path) -> None:
    class Declines(FakeReferee):
        def start(self, stacks, seconds):
            held = [stack for stack in stacks if "malloc" not in stack]
            why = f"malloc {UNHELD} in this program: no page of it is fresh"
            return super().start(held, seconds) | {stack: why for stack in stacks if stack not in held}

    promised = [replace(each, predicted=Saving(4 * MS, 5 * MS, 9 * MS), cause=each.name) for each in CANDIDATES[:2]]
    receipt = tuned(Declines({"fused": 1.5}, room=1), promised, tmp_path, seconds=100).receipt()
    assert any(len(each.remedies) > 1 and each.verdict == "failed" for each in receipt.trials)
    assert "malloc" not in receipt.left and not any(note.startswith("malloc was not") for note in receipt.notes)


def test_two_suspects_do_not_take_the_time_of_the_confirmation(tmp_path: Path) -> None:
    both = [CANDIDATES[0], *(replace(each, risk=9) for each in CANDIDATES[1:3])]
    gains = {"fused": 1.5, "malloc": 1.3, "bf16": 1.3}
    referee = FakeReferee(gains, red=("malloc", "bf16"), guard_s=50)
    receipt = tuned(referee, both, tmp_path, seconds=200).receipt()
    assert referee.guarded[-1] == ("fused",) and len(referee.guarded) == 2 and receipt.kept == ("fused",)


def test_a_resumed_tuning_takes_over_only_what_it_may_try(tmp_path: Path) -> None:
    """The second time one of them is excluded (--without)."""
    gains = {"fused": 1.2, "bf16": 2.0}
    both = [CANDIDATES[0], CANDIDATES[2]]
    assert set(tuned(FakeReferee(gains), both, tmp_path).kept) == {"fused", "bf16"}
    assert tuned(FakeReferee(gains), both[:1], tmp_path).kept == ("fused",)


def test_what_there_was_no_time_for_is_left_open(tmp_path: Path) -> None:
    """Two minutes of a program that waits for its loader went into compile, and that was told as an answer."""
    rest = [Candidate(f"r{n}", Saving(0.0, 5 * MS, 10 * MS)) for n in range(9)]
    receipt = tuned(FakeReferee({"r0": 0.8}, start_s=20, room=1), rest, tmp_path, seconds=60).receipt()
    assert receipt.measured and not receipt.kept and receipt.left and exit_code(receipt) == OPEN
    assert (
        f"There was no time to try and to prove {', '.join(receipt.left[:3])} and {len(receipt.left) - 3} more."
        in as_text(receipt, width=400)
    )
    assert {f"{name} was not tried: there was no time left to try and to prove it" for name in receipt.left} <= {
        *receipt.notes
    }


def test_nothing_was_measured_is_not_none_made_it_faster(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    broken = tuned(FakeReferee(GAINS, broken=tuple(GAINS)), CANDIDATES, tmp_path / "a").receipt()
    assert not broken.measured and exit_code(broken) == UNMEASURED
    slower = tuned(FakeReferee({"bf16": 0.7}), CANDIDATES[2:3], tmp_path / "b").receipt()
    assert slower.measured and slower.kept == () and exit_code(slower) == 0
    none = tuned(FakeReferee({}), [], tmp_path).receipt()
    assert none.measured and exit_code(none) == 0


def test_minutes_that_cannot_hold_a_race_are_told_with_those_that_can(tmp_path: Path) -> None:
    """BERT on a crowded machine: the program as it is took a minute to get warm, and nothing else was begun."""
    receipt = tuned(FakeReferee({"fused": 1.5}, start_s=60), CANDIDATES[:1], tmp_path, seconds=100).receipt()
    assert not receipt.measured
    (said,) = (note for note in receipt.notes if note.startswith("a start takes 60 s here: "))
    enough = 60 * int(said.split(": ")[1].split()[0])
    longer = tuned(FakeReferee({"fused": 1.5}, start_s=60), CANDIDATES[:1], tmp_path, seconds=enough).receipt()
    assert longer.kept == ("fused",) and not any("would do" in note for note in longer.notes)


def test_a_program_that_cannot_be_run_is_told_once(tmp_path: Path) -> None:
    class Dead(FakeReferee):
        def start(self, stacks, seconds):
            return {stack: "it ended with exit code 1" for stack in stacks}

    receipt = tuned(Dead(GAINS), CANDIDATES, tmp_path).receipt()
    assert not receipt.measured and "the program as it is could not be run: it ended with exit code 1" in receipt.notes


def test_an_arm_that_dies_in_its_blocks_is_an_outcome(tmp_path: Path) -> None:
    receipt = tuned(FakeReferee(GAINS, mortal=("malloc",)), CANDIDATES[:2], tmp_path).receipt()
    assert receipt.kept == ("fused",)
    assert [(t.verdict, t.reason) for t in receipt.trials if t.remedies == ("malloc",)] == [("failed", "it was killed")]


def test_an_interruption_leaves_what_was_finished_and_resuming_takes_over_what_is_settled(tmp_path: Path) -> None:
    class Interrupted(FakeReferee):
        def guard(self, stack, milder=()):
            raise KeyboardInterrupt

    gains = {**GAINS, "leaky": 1.0}
    cut = tuned(Interrupted(gains), CANDIDATES, tmp_path).receipt()
    assert not cut.complete and exit_code(cut) == 130 and len(cut.trials) >= 4
    again = FakeReferee(gains)
    whole = tuned(again, CANDIDATES, tmp_path).receipt()
    assert whole.complete and whole.kept == ("fused", "malloc")
    assert ("fused",) in {t.remedies for t in whole.trials} and ("bf16",) not in again.starts


@pytest.mark.parametrize("open_ones", [{"broken": ("fused",)}, {"mortal": ("fused",)}])
def test_resuming_measures_again_what_failed_or_stayed_open(tmp_path: Path, open_ones: dict) -> None:
    tuned(FakeReferee(GAINS, **open_ones), CANDIDATES[:2], tmp_path)
    again = FakeReferee(GAINS)
    receipt = tuned(again, CANDIDATES[:2], tmp_path).receipt()
    assert ("fused",) in again.starts and set(receipt.kept) == {"fused", "malloc"}


def test_what_stayed_open_realised_nothing(tmp_path: Path) -> None:
    found = tuned(FakeReferee({"fused": 1.01}), CANDIDATES[:1], tmp_path).results[0]
    assert (found.verdict, found.realised_ns) == ("inconclusive", None) and found.samples.arm


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    tuned(FakeReferee(GAINS), CANDIDATES[:1], tmp_path)
    file = tmp_path / "journal.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    again = FakeReferee(GAINS)
    assert tuned(again, CANDIDATES[:1], tmp_path).receipt().kept == ("fused",) and again.measured == [("fused",)]


def test_the_listener_hears_what_runs_what_it_has_shown_and_what_came_of_it(tmp_path: Path) -> None:
    heard: list[str] = []

    class Ear(Listener):
        def heat(self, heat) -> None:
            heard.append("heat")

        def standing(self, heat) -> None:
            heard.append("standing")

        def guarding(self, stack) -> None:
            heard.append("guarding")

        def began(self, plan, number) -> None:
            heard.append("final")

        def ended(self, result) -> None:
            heard.append(result.verdict)

    tuned(FakeReferee(GAINS), CANDIDATES[:1], tmp_path, listener=Ear())
    assert heard[:2] == ["heat", "standing"] and heard[-4:] == ["faster", "guarding", "final", "faster"]


def test_what_was_judged_without_dropout_says_so(tmp_path: Path) -> None:
    class Referee(FakeReferee):
        def guard(self, stack: tuple[str, ...], milder: tuple[str, ...] = ()) -> Guarded:
            return Guarded("equivalent", (WITHOUT_DROPOUT,)) if "fused" in stack else super().guard(stack)

    for gains, said in ((GAINS, True), ({"malloc": 1.3}, False)):
        (tmp_path / str(said)).mkdir()
        receipt = tuned(Referee(gains), CANDIDATES, tmp_path / str(said), seconds=600).receipt()
        assert receipt.kept and (WITHOUT_DROPOUT in receipt.notes) is said


def test_the_step_of_the_diagnosis_is_kept_beside_that_of_the_trial(tmp_path: Path) -> None:
    receipt = tuned(FakeReferee(GAINS), CANDIDATES[:1], tmp_path).receipt()
    assert receipt.diagnosed_step_ns == 20 * MS and receipt.step_ns == receipt.trials[-1].baseline_step_ns


def test_what_no_check_sees_of_a_remedy_is_said_where_it_is_kept(tmp_path: Path) -> None:
    """trim_padding: a program that counts the elements of its batches trains for another number of steps."""
    candidates = [replace(CANDIDATES[0], unseen="batches are narrower"), CANDIDATES[1]]
    for gains, said in (({"fused": 1.5}, True), ({"malloc": 1.5}, False)):
        (tmp_path / str(said)).mkdir()
        receipt = tuned(FakeReferee(gains), candidates, tmp_path / str(said), seconds=600).receipt()
        assert receipt.kept and ("fused: batches are narrower" in receipt.notes) is said


def test_where_all_that_was_shown_takes_too_long_to_confirm_the_best_of_it_is_that_does_not(tmp_path: Path) -> None:
    """Twice a language model's start, compiled, was more than what was left; a remedy that took 2.1 times less
    by itself starts as fast as the program."""

    class Slow(FakeReferee):
        def started(self, stack: tuple[str, ...]) -> tuple[float, float]:
            return (90.0 if "compiled" in stack else 20.0), self.step(stack)

    both = [Candidate(name, Saving(0.0, 5 * MS, 10 * MS)) for name in ("compiled", "cut")]
    gains = {"compiled": 1.4, "cut": 2.1}
    receipt = tuned(Slow(gains, start_s=30.0, guard_s=20.0), both, tmp_path, seconds=190).receipt()
    assert receipt.kept == ("cut",) and any(note.startswith("cut + compiled") for note in receipt.notes)
    (tmp_path / "long").mkdir()
    assert set(tuned(Slow(gains), both, tmp_path / "long", seconds=900).receipt().kept) == {"cut", "compiled"}


def test_a_guard_of_another_order_is_thought_to_take_a_run_more(tmp_path: Path) -> None:
    """Of other data other seeds are always run: an encoder's guard took 54 s of the 72 that were left for all."""

    def proof(reorders: bool) -> float:
        referee = FakeReferee({"x": 1.3})
        tuning = Tuning([Candidate("x", Saving(0.0, MS, 10 * MS), reorders=reorders)], referee.step(()), referee,
                        Journal(tmp_path / f"{reorders}"), seconds=600, clock=referee.clock)  # fmt: skip
        tuning.run()
        return tuning._proof(("x",), margin=1.0)

    run = proof(True) - proof(False)
    assert run == pytest.approx(6.0 + 30 * 2 * 20e-3, rel=0.05), "a start and thirty watched steps"


def promised(name: str, expected: float, **fields: Any) -> Candidate:
    return Candidate(name, Saving(5 * MS, expected * MS, 15 * MS), cause=f"of {name}", **fields)


@pytest.mark.parametrize(
    ("compiled", "seconds", "kept"),
    [(1.355, 600, ("one", "two")), (1.6, 250, ("one", "two")), (1.6, 600, ("compile", "bf16_autocast", "one"))],
    ids=["about as fast", "no time for it", "time for it"],
)
def test_where_there_is_no_time_for_what_compiles_the_best_other_stack_is_confirmed(
    tmp_path: Path, compiled: float, seconds: float, kept: Stack
) -> None:
    """A decoder's three remedies were shown at 1.82, two of them compiled at 1.82 too; one alone, 1.20, was kept: of
    what compiles only parts were asked for. What is about as fast and takes longer is not confirmed at all."""

    class Slow(FakeReferee):
        def started(self, stack: Stack) -> tuple[float, float]:
            return (90.0 if "compile" in stack else 20.0), self.step(stack)

    both = [promised("one", 9), promised("two", 8, overlaps=frozenset({"compile"}))]
    staples = [promised("bf16_autocast", 0.1), Candidate("compile", Saving(0.0, 2 * MS, 15 * MS))]
    gains = {"one": 1.2, "two": 1.3, "compile": compiled, "bf16_autocast": 1.0}
    tuning = tuned(Slow(gains, start_s=25.0, room=1), [*both, *staples], tmp_path, seconds=seconds)
    assert tuning.kept == kept


def test_who_does_not_take_hold_leaves_the_whole_in_the_same_heat(tmp_path: Path) -> None:
    referee = FakeReferee({"one": 1.3, "two": 1.2}, broken=["bf16", "three"], room=2)
    names = ("bf16", "one", "two", "three")
    tuning = tuned(referee, [promised(name, 9 - n) for n, name in enumerate(names)], tmp_path)
    assert referee.starts[:2] == [(), names] and referee.starts[3] == ("one", "two") and tuning.kept == ("one", "two")


def test_a_whole_that_came_late_does_not_shut_its_parts_out(tmp_path: Path) -> None:
    """Its start was longer than what was left; one of its parts starts as fast as the program."""

    class Slow(FakeReferee):
        def start(self, stacks, seconds):  # type: ignore[no-untyped-def]
            slow = [stack for stack in stacks if "slow" in stack]
            failed = super().start([stack for stack in stacks if stack not in slow], seconds)
            self.machine.now += seconds / 2 if slow else 0.0
            return failed | dict.fromkeys(slow, f"{LATE} 94 s")

    tuning = tuned(Slow({"quick": 1.5}, room=1), [promised("slow", 9), promised("quick", 8)], tmp_path)
    assert tuning.kept == ("quick",)


def test_parts_of_a_whole_that_could_not_run_are_told_as_not_tried(tmp_path: Path) -> None:
    names = ("one", "two", "mortal")
    referee = FakeReferee({"one": 1.3}, mortal=["mortal"], room=1, start_s=60)
    tuning = tuned(referee, [promised(name, 9 - n) for n, name in enumerate(names)], tmp_path, seconds=240)
    assert tuning.results[0].remedies == names and tuning.results[0].verdict == "failed"
    tried = {name for result in tuning.results[1:] for name in result.remedies}
    assert set(tuning.receipt().left) == set(names) - tried != set()


@pytest.mark.parametrize(("risk", "guards"), [(0, 0), (1, 0), (2, 1), (4, 1)])
def test_what_a_guard_may_refuse_leaves_time_for_a_second_one(tmp_path: Path, risk: int, guards: int) -> None:
    referee = FakeReferee({"x": 1.3})
    tuning = Tuning([Candidate("x", Saving(0.0, MS, 10 * MS), risk=risk)], referee.step(()), referee,
                    Journal(tmp_path / "j"), seconds=600, clock=referee.clock)  # fmt: skip
    tuning._heats()
    assert tuning._proof(("x",)) + guards * tuning._check(("x",)) == pytest.approx(600 - tuning._race_until())


def with_proofs(folder: Path, shown: dict[Stack, float], proofs: dict[Stack, float], **risks: int) -> Tuning:
    """300 s are left; what was shown, and how long it takes to prove it."""
    referee = FakeReferee({})
    candidates = [Candidate(n, Saving(0, MS, MS), risk=risks.get(n, 0)) for n in {n for stack in shown for n in stack}]
    tuning = Tuning(candidates, referee.step(()), referee, Journal(folder / "j"), seconds=300, clock=referee.clock)
    tuning.race.shown.update(shown)
    tuning._proof = lambda stack, margin=1.0: proofs.get(stack, 250.0)  # type: ignore[method-assign]
    return tuning


@pytest.mark.parametrize(
    ("mean", "proof", "risk", "taken"),
    [(0.285, 100, 0, "short"), (0.285, 220, 0, "long"), (0.285, 100, 4, "long"), (0.27, 100, 0, "long")],
    ids=["as fast", "hardly shorter", "riskier", "slower"],
)
def test_what_is_about_as_fast_and_proven_much_sooner_is_proven(
    tmp_path: Path, mean: float, proof: float, risk: int, taken: str
) -> None:
    tuning = with_proofs(tmp_path, {("long",): 0.3, ("short",): mean}, {("short",): proof}, short=risk)
    assert tuning._affordable(("long",)) == (taken,)
    tuning.race.refused.add("short")
    assert tuning._affordable(("long",)) == ("long",)


def test_what_is_left_of_a_refused_stack_is_asked_for_its_time_too(tmp_path: Path) -> None:
    whole = ("compile", "bf16", "a")
    tuning = with_proofs(tmp_path, {whole: 1.0, ("a",): 0.3}, {("a",): 100.0, ("compile", "a"): 400.0}, bf16=4)
    measured: list[Stack] = []
    tuning._guarded = lambda stack: Guarded("wrong" if "bf16" in stack else "exact")  # type: ignore[method-assign]
    tuning._measure = lambda stack, guarded: measured.append(stack)  # type: ignore[method-assign]
    assert tuning._confirm(whole) and measured == [("a",)]
