"""Which runs the guard asks for, and what becomes of those that fail; arms and verdicts are played by fakes."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.errors import GobrrrError
from gobrrr.guard.model.account import Account, Batch, Calls, Row
from gobrrr.guard.model.observation import Call, Data, Observation, Step, write
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import Guarded
from gobrrr.guard.reference.watched_steps import FEWEST_TWINS, TWIN_STEPS, twin_steps
from gobrrr.ledger.model.device import DeviceMemory
from gobrrr.ledger.model.ledger import MemoryLedger
from gobrrr.pipeline import tuning
from gobrrr.pipeline.tuning import between_ns, copies
from gobrrr.rules.verdict.report import Device, OtherLoop, Report, Verdict
from gobrrr.rules.verdict.report import Step as Told
from gobrrr.trial.arm.arm import SPENT, Arm, ArmError
from gobrrr.trial.arm.live_arms import MOST
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.race import guard_runs
from gobrrr.trial.race.guard_runs import PLAIN, Guarding, Watched
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.receipt.receipt import Measured, Speedup

EXACT, GREEN, RED = Guarded("exact"), Guarded("equivalent"), Guarded("changed")
AGAIN, TRUE = Watched(again=True), Watched(float64=True)
LOWERED = ("compile", "bf16_autocast")
SEEDS = [Watched(seed=seed) for seed in guard_runs.SEEDS]


def observation(data: str, loss: float = 1.0) -> Observation:
    """A step whose model was given this."""
    return Observation(steps=(Step(calls=(Call("m", True, Data(data)),), losses=(loss,)),))


class Means:
    """Arms that are watched at once; `fails` says why one does, `gives` the data that its model is given."""

    def __init__(self, at_once: int = 4) -> None:
        self.num, self.over, self.stopped = at_once, False, False
        self.watched: list[Watched] = []
        self.moves = 0.01
        """What bfloat16 does to a loss on this chip."""
        self.draw_otherwise: tuple[tuple[str, ...], ...] = ()
        self.options: dict[Watched, dict[str, Any]] = {}
        self.fails: Callable[[Watched], str] = lambda _: ""
        self.gives: Callable[[Watched], str] = lambda _: "data"
        self.made: Callable[[Watched], Observation] | None = None
        self.others: Callable[[Watched], list[Observation]] = lambda _: []
        """What is seen on other ranks."""

    def arm(self, folder: Path, stack: tuple[str, ...]) -> FakeArm:
        return FakeArm(self, folder, stack)

    def at_once(self) -> int:
        return self.num

    def is_over(self) -> bool:
        return self.over

    def stop(self) -> None:
        self.stopped = True


class FakeArm:
    def __init__(self, means: Means, folder: Path, stack: tuple[str, ...]) -> None:
        self.means, self.folder, self.stack = means, folder, stack
        self.others: list[Observation] = []
        self.killed = threading.Event()

    def observe(
        self, steps: int, *, seed: int, float64: bool, without_dropout: bool, keeps: bool, **options: Any
    ) -> Observation:
        again = not (self.stack or float64 or seed or keeps)
        beside = options["states"] is not None and self.stack in self.means.draw_otherwise
        wanted = Watched(self.stack, float64, again, seed, without_dropout, beside=beside)
        self.means.watched.append(wanted)
        self.means.options[wanted] = {**options, "steps": steps}
        reason = self.means.fails(wanted)
        if reason == "hangs":
            assert self.killed.wait(20)
            reason = SPENT
        if reason:
            raise ArmError(reason)
        if keeps:
            (self.folder / "states").mkdir(parents=True)
        self.others = self.means.others(wanted)
        if self.means.made is not None:
            return self.means.made(wanted)
        return observation(self.means.gives(wanted), 1.0 + self.means.moves * ("bf16_autocast" in self.stack))

    def kill(self) -> None:
        self.killed.set()

    def end(self) -> None:
        """At once."""


@pytest.fixture
def means() -> Means:
    return Means()


Verdicts = list[dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Verdicts:
    """What the verdicts were asked with; each takes the next of `answers`, the last one from there on."""
    found: Verdicts = []

    def judge(baseline: Observation, candidate: Observation, **given: Any) -> Guarded:
        found.append(given)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    answers = [RED]
    monkeypatch.setattr(guard_runs, "judge", judge)
    monkeypatch.setattr(guard_runs, "answers", answers, raising=False)
    return found


def judged(means: Means, folder: Path, stack: tuple[str, ...], *answers: Guarded) -> Guarded:
    guard_runs.answers[:] = answers  # type: ignore[attr-defined]
    return Guarding(means, folder, 1e6).judged(stack)


def test_equal_bits_need_no_other_run(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    assert judged(means, tmp_path, ("malloc_thresholds",), EXACT) is EXACT
    assert means.watched == [PLAIN, Watched(("malloc_thresholds",))]


def test_what_is_green_in_the_strictest_view_is_not_run_again(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    assert judged(means, tmp_path, ("compile",), RED, GREEN) is GREEN
    assert set(means.watched) == {PLAIN, Watched(("compile",)), TRUE}
    plain = asked[1]
    assert plain["again"] == observation("data") and plain["reference"] is not None and not plain["seeds"]


def test_in_doubt_the_program_runs_again_and_from_other_seeds(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    means.gives = lambda run: f"data of seed {run.seed}, again {run.again}" if run.seed or run.again else "data"
    assert judged(means, tmp_path, ("compile",), RED, RED, RED, RED, GREEN) is GREEN
    assert {AGAIN, *SEEDS} <= set(means.watched)
    assert asked[2]["again"] == observation("data of seed 0, again True"), "whether the two are equal but for its noise"
    assert not asked[3]["seeds"] and len(asked[4]["seeds"]) == 2


def test_of_another_order_of_samples_other_seeds_decide(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    """Tensors of other data cannot be compared with float64's. The program's second run begins from its first one's
    states, which are there once that has ended."""
    means.gives = lambda run: "data" if not run.stack else "in another order"
    stack = ("loader_workers",)
    guard_runs.answers[:] = [RED, RED, RED, GREEN]  # type: ignore[attr-defined]
    assert Guarding(means, tmp_path, 1e6).judged(stack) is GREEN
    assert set(means.watched) == {PLAIN, Watched(stack), AGAIN, *SEEDS}
    assert set(means.watched[:2]) == {PLAIN, Watched(stack)}
    assert len(asked[-1]["seeds"]) == 2 and asked[-1]["order_may_change"] and asked[-1]["reference"] is None


@pytest.mark.parametrize("rest", [GREEN, RED])
def test_what_else_is_in_a_stack_of_another_order_answers_for_itself(
    rest: Guarded, means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    """trim_padding beside bucketing: a model that pools over padding was cut, and its losses were near enough."""
    means.gives = lambda run: "in another order" if "bucketing" in run.stack else "data"
    stack, alone = ("trim_padding", "bucketing"), ("trim_padding",)
    # the stack's own first look; the rest: equal bits, strictly, in doubt; then where the stack's losses go
    guard_runs.answers[:] = [RED, RED, rest, rest, rest, rest, *([] if rest is RED else [GREEN])]  # type: ignore[attr-defined]
    found = Guarding(means, tmp_path, 1e6).judged(stack)
    assert found.green is rest.green
    without = PLAIN._replace(without_dropout=True)
    assert {without._replace(stack=alone), without._replace(float64=True)} <= set(means.watched)
    assert any(not each["order_may_change"] for each in asked if "order_may_change" in each)


def test_what_may_change_the_order_is_watched_beside_a_second_run_where_the_first_was_ahead(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    guard = Guarding(means, tmp_path, 1e6)
    guard.ahead(20, [("loader_workers",)])
    guard_runs.answers[:] = [EXACT]  # type: ignore[attr-defined]
    assert guard.judged(("loader_workers",)) is EXACT
    assert set(means.watched) == {PLAIN, Watched(("loader_workers",)), AGAIN}


def test_what_may_change_the_order_and_did_not_is_held_against_float64(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    """From the baseline's states: with other threads, rounding alone leads far away in thirty steps of its own."""
    means.draw_otherwise = (("loader_workers",),)
    assert judged(means, tmp_path, ("loader_workers",), RED, GREEN) is GREEN
    assert TRUE in means.watched and asked[1]["reference"] is not None
    assert means.options[Watched(("loader_workers",), beside=True)]["states"] is not None


def test_equal_but_for_what_the_program_does_otherwise_each_time_is_exact(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    assert judged(means, tmp_path, ("compile",), RED, RED, EXACT) is EXACT


def test_a_lower_precision_is_first_judged_as_if_it_were_none(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    means.gives = lambda run: "data"
    assert judged(means, tmp_path, LOWERED, RED, RED, GREEN) is GREEN
    assert set(means.watched) == {PLAIN, Watched(LOWERED), TRUE, Watched(("bf16_autocast",))}
    assert "naive" not in asked[1] and asked[2]["naive"] is not None and asked[2]["precision"] == "bfloat16"


def test_a_lower_precision_whose_naive_version_cannot_be_run_is_judged_as_any_other(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    """Nothing says then what the precision alone does."""
    means.fails = lambda run: "no memory" if run.stack == ("bf16_autocast",) else ""
    assert not judged(means, tmp_path, LOWERED, *[RED] * 8).green
    assert len(asked) > 2 and not any(each.get("precision") for each in asked)


def test_a_lower_precision_that_this_chip_keeps_is_judged_as_any_other(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    assert judged(means, tmp_path, LOWERED, RED, GREEN, RED) is GREEN and len(asked) == 2


def test_a_lower_precision_that_does_nothing_here_grants_nothing(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    means.moves = 0.0
    assert not judged(means, tmp_path, LOWERED, *[RED] * 8).green
    assert not any(each.get("precision") for each in asked)


@pytest.mark.parametrize(("rest", "green"), [(GREEN, True), (RED, False)])
def test_what_keeps_the_precision_of_a_stack_answers_for_itself(
    rest: Guarded, green: bool, means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    """Within what bfloat16 explains it may shift a loss by a twentieth. What compiles would be compiled anew."""
    stack, kept = ("compile", "bf16_autocast", "fused_optimizer"), ("fused_optimizer",)
    # the stack: equal bits, strictly, as of bfloat16; the rest: equal bits, strictly, in doubt
    found = judged(means, tmp_path, stack, RED, RED, Guarded("bounded"), RED, rest)
    assert found.green is green and found.verdict == ("bounded" if green else "changed")
    assert means.watched.count(Watched(kept)) == 1 and not asked[4].get("precision")
    assert set(means.watched[:5]) == {PLAIN, TRUE, *map(Watched, (stack, ("bf16_autocast",), kept))}


def test_it_is_not_asked_where_the_stack_is_green_without_any_allowance(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    assert judged(means, tmp_path, ("bf16_autocast", "fused_optimizer"), RED, GREEN, RED) is GREEN and len(asked) == 2


def test_the_naive_version_is_not_held_against_itself(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    judged(means, tmp_path, ("bf16_autocast",), RED, RED, GREEN)
    assert asked[2]["naive"] is None and asked[2]["precision"] == "bfloat16"


@pytest.mark.parametrize(("at_once", "ahead"), [(4, True), (3, False)])
def test_what_may_be_asked_for_next_is_watched_where_a_core_is_idle(
    at_once: int, ahead: bool, asked: Verdicts, tmp_path: Path
) -> None:
    means, spare = Means(at_once), Watched(("compile",))
    guard_runs.answers[:] = [RED, RED, GREEN]  # type: ignore[attr-defined]
    each = Guarding(means, tmp_path, 1e6)
    each.judged(LOWERED, ("compile",))
    assert (spare in means.watched) is ahead
    each.judged(("compile",))
    assert means.watched.count(spare) == 1 and means.watched.count(TRUE) == 1


@pytest.mark.parametrize(("stack", "milder"), [
    (("malloc_thresholds", "pin_memory"), ("malloc_thresholds",)),  # promises equal bits
    (("trim_padding", "compile"), ("compile",)),  # its runs have no dropout, the other's do
])  # fmt: skip
def test_what_may_be_asked_for_next_is_not_watched_in_vain(
    stack: tuple[str, ...], milder: tuple[str, ...], means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    Guarding(means, tmp_path, 1e6).judged(stack, milder)
    assert not any(run.stack == milder for run in means.watched)


def test_a_program_that_nobody_saw_repeat_itself_is_run_again(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    """Green as it would be otherwise: the data of no other run were those of the first one."""
    numbers = iter(range(100))
    means.gives = lambda run: f"data {next(numbers)}"
    judged(means, tmp_path, ("compile",), RED, GREEN)
    assert AGAIN in means.watched


def test_what_makes_dropout_draw_otherwise_is_judged_without_any(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    """All of its runs, from states that such a run kept; and as what gives a model the same data in the same order."""
    judged(means, tmp_path, ("trim_padding", *LOWERED), RED)
    assert all(run.without_dropout for run in means.watched) and len(means.watched) == 8
    changed = means.options[Watched(("trim_padding", *LOWERED), without_dropout=True)]
    assert changed["states"] == means.options[PLAIN._replace(without_dropout=True)]["states"] is not None
    assert not asked[-1]["order_may_change"]
    judged(means, tmp_path, ("trim_padding", "loader_workers"), RED)
    assert asked[-1]["order_may_change"]
    equal = judged(means, tmp_path, ("trim_padding",), EXACT)
    assert equal.verdict == "equivalent" and equal.reasons == (guard_runs.WITHOUT_DROPOUT,), "its masks are others"


def test_states_that_were_kept_without_dropout_are_of_no_use_with_it(
    means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    guard = Guarding(means, tmp_path, 1e6)
    for stack in (("trim_padding",), ("compile",)):
        guard.judged(stack)
    kept = [options["states"] for run, options in means.options.items() if run.stack]
    assert len(kept) == len(set(kept)) == 2 and None not in kept


def test_what_draws_otherwise_walks_its_own_way(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    means.gives = lambda run: "in another order" if run.stack else "data"
    judged(means, tmp_path, ("loader_workers",), RED, RED, GREEN)
    assert means.options[Watched(("loader_workers",))]["states"] is None and asked[-1]["order_may_change"]
    means.gives = lambda _: "data"
    judged(means, tmp_path / "2", ("compile",), RED)
    assert all(means.options[seed]["states"] is None for seed in SEEDS) and not asked[-1]["order_may_change"]


def test_who_failed_beside_others_is_watched_by_itself(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    failed: set[Watched] = set()

    def once(wanted: Watched) -> str:
        first = wanted not in failed and wanted != PLAIN
        failed.add(wanted)
        return "it was killed: out of memory, most likely" if first else ""

    means.fails = once
    assert judged(means, tmp_path, ("compile",), RED, GREEN) is GREEN and asked[1]["reference"] is not None
    assert means.watched.count(TRUE) == 2


def test_a_program_that_cannot_be_watched_is_unverified(means: Means, asked: Verdicts, tmp_path: Path) -> None:
    means.fails = lambda wanted: "it ended with exit code 1" if wanted.stack else ""
    found = judged(means, tmp_path, ("compile",), GREEN)
    assert found.verdict == "unverified" and "exit code 1" in found.reasons[0]


def test_a_look_ahead_that_takes_too_long_or_fails_is_made_again(means: Means, tmp_path: Path) -> None:
    guard = Guarding(means, tmp_path, 1e6)
    means.fails = lambda _: "hangs"
    guard.ahead(0.01)
    means.fails = lambda _: "it was killed: out of memory, most likely"
    guard.ahead(20)
    assert guard.seen == {}
    means.fails = lambda _: ""
    guard.ahead(20)
    assert set(guard.seen) == {PLAIN}
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for each in timers:
        each.join(5)
    assert not any(each.is_alive() for each in timers), "one would end whatever is watched later"


@pytest.mark.parametrize(
    ("stack", "plain"),
    [
        ((), PLAIN), (("fused_optimizer",), PLAIN), (("packed_masks",), Watched(without_dropout=True)),
    ],
)  # fmt: skip
def test_what_is_watched_ahead_is_what_the_guard_asks_for_then(
    stack: tuple[str, ...], plain: Watched, means: Means, asked: Verdicts, tmp_path: Path
) -> None:
    guard = Guarding(means, tmp_path, 1e6)
    guard.ahead(20, [stack])
    assert set(guard.seen) == {plain}
    guard_runs.answers[:] = [EXACT]  # type: ignore[attr-defined]
    guard.judged(stack or ("malloc_thresholds",))
    assert means.watched.count(plain) == 1


def test_what_several_stacks_are_held_against_is_watched_ahead_at_once(means: Means, tmp_path: Path) -> None:
    guard = Guarding(means, tmp_path, 1e6)
    guard.ahead(20, [("packed_masks",), (), ("fused_optimizer",)])
    assert set(guard.seen) == {Watched(without_dropout=True), PLAIN} and len(means.watched) == 2


@pytest.mark.parametrize(
    ("step_ns", "steps"), [(0.0, TWIN_STEPS), (1e6, TWIN_STEPS), (2e8, TWIN_STEPS), (4e8, 15), (3e10, FEWEST_TWINS)]
)
def test_long_steps_are_watched_less_often(step_ns: float, steps: int, means: Means, tmp_path: Path) -> None:
    assert twin_steps(step_ns) == steps
    Guarding(means, tmp_path, step_ns).ahead(20)
    assert means.options[PLAIN]["steps"] == steps


def test_what_lies_between_two_steps_is_known_by_the_other_loops_shares(tmp_path: Path) -> None:
    """Evaluations that take three times as long as the steps, after every tenth; a test at the end lies between none,
    and what comes after every hundredth lies in no watched run."""
    often = OtherLoop("forwards of T5", 0.6, 300, beside=30, times=3, between=0.6)
    loops = (often, OtherLoop("forwards of T5", 0.2, 90, beside=30, apart=True))
    given = Report(verdict=Verdict("data", ""), step=Told(10, 100, 100), loops=loops)
    assert between_ns(given) == pytest.approx(300)
    program = Program(("python", "train.py"), tmp_path, 1e8, between_ns=3e8)
    assert LiveReferee(program, tmp_path).guarding._step_ns == 4e8
    assert between_ns(replace(given, loops=())) == 0
    assert between_ns(replace(given, loops=(replace(often, share=1 - 1e-16, between=1.0),))) == 0
    assert between_ns(replace(given, loops=(replace(often, beside=TWIN_STEPS * 3),))) > 0
    assert between_ns(replace(given, loops=(replace(often, beside=TWIN_STEPS * 3 + 1),))) == 0


@pytest.mark.parametrize(("reserved", "capacity", "fits"), [
    (6 << 30, 80 << 30, 9), (22 << 30, 80 << 30, 2), (30 << 30, 80 << 30, 2), (32 << 30, 80 << 30, 1),
    (70 << 30, 80 << 30, 1),
])  # fmt: skip
def test_arms_are_as_many_as_the_device_holds(reserved: int, capacity: int, fits: int, tmp_path: Path) -> None:
    memory = DeviceMemory(1 << 30, reserved, capacity=capacity, resident=1 << 20)
    given = Report(
        verdict=Verdict("compute", ""), step=Told(10, 100, 100), device=Device("gpu", 0.9, None, memory=memory)
    )
    if fits < 2:
        with pytest.raises(GobrrrError, match="holds this program once"):
            copies(given)
        return
    assert copies(given) == fits
    program = Program(("python", "train.py"), tmp_path, 1e8, bytes=1 << 20, copies=fits)
    referee = LiveReferee(program, tmp_path)
    referee._cores = 64
    referee.field._most = MOST
    assert referee.at_once() == max(1, fits // 2) and referee.places() == min(fits - 1, MOST)
    referee.close()


@pytest.mark.parametrize(
    ("copies", "cores", "threads", "free", "watched"),
    [(0, 2, 2, 99, 1), (5, 2, 2, 99, 1), (4, 2, 2, 99, 0), (7, 6, 6, 99, 2), (7, 5, 5, 99, 1), (6, 6, 6, 99, 1),
     (0, 6, 6, 99, 1), (0, 6, 3, 99, 2), (7, 6, 6, 8.9, 1), (7, 6, 6, 5.9, 0), (7, 6, 6, 9.1, 2)],
)  # fmt: skip
def test_as_much_is_watched_ahead_as_arms_leave_room_for(
    copies: int, cores: int, threads: int, free: float, watched: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside three arms: on the device, in memory (in times what the program holds), on cores."""
    told: list[list[tuple[str, ...]]] = []
    program = Program(("python", "train.py"), tmp_path, 1e8, bytes=1 << 20, copies=copies, threads=threads)
    referee = LiveReferee(program, tmp_path)
    referee._cores = cores
    memory = type("Memory", (), {"available": int(free * (1 << 20))})
    monkeypatch.setattr("gobrrr.trial.race.referee.psutil.virtual_memory", lambda: memory)
    monkeypatch.setattr(referee.guarding, "ahead", lambda _, stacks: told.append(stacks))
    monkeypatch.setattr(referee.field, "start", lambda *given: (given[-1] and given[-1]()) or {})
    referee.start([(), ("a",), ("b",)], 60)
    referee.close()
    assert told == ([[("a",), ()][:watched]] if watched else [])


@pytest.mark.parametrize(
    ("copies", "cores", "free", "known", "pairs"),
    [(0, 16, 99, 1, 3), (0, 8, 99, 1, 2), (0, 4, 99, 1, 1), (0, 2, 99, 1, 1), (0, 16, 7.6, 1, 3), (0, 16, 7.4, 1, 2),
     (0, 16, 1, 1, 1), (0, 16, 99, 0, 1), (6, 16, 99, 1, 3), (5, 16, 99, 1, 2), (2, 16, 99, 1, 1), (0, 16, 99, 5, 1),
     (0, 16, 99, 8, 1), (0, 16, 99, 4, 2), (6, 16, 99, 16, 3)],
)  # fmt: skip
def test_pairs_start_beside_each_other_as_cores_memory_and_the_device_allow(
    copies: int, cores: int, free: float, known: int, pairs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`free` in times what the program holds, `known` its threads, 0 where nothing is known of it: on a CPU the first
    steps of six that compute with all cores would take them from each other."""
    program = Program(("python", "train.py"), tmp_path, 1e8, bytes=bool(known) << 20, copies=copies, threads=known)
    referee = LiveReferee(program, tmp_path)
    referee._cores = cores
    memory = type("Memory", (), {"available": int(free * (1 << 20))})
    monkeypatch.setattr("gobrrr.trial.race.referee.psutil.virtual_memory", lambda: memory)
    referee.close()
    assert referee.pairs() == pairs


@pytest.mark.parametrize("device", [False, True])
def test_arms_are_told_what_the_program_holds_here_and_on_its_device(
    device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[Program] = []
    memory = DeviceMemory(1 << 30, 6 << 30, capacity=80 << 30, resident=3 << 20)
    told = Report(verdict=Verdict("compute", ""), step=Told(10, 100, 100), memory=MemoryLedger(peak=5 << 20),
                  device=Device("gpu", 0.9, None, memory=memory) if device else None)  # fmt: skip

    def stops(_: object, program: Program, *rest: object) -> None:
        raced.append(program)
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning.first_run, "diagnosed", lambda *_: told)
    monkeypatch.setattr(tuning, "unable", lambda *_: {})
    monkeypatch.setattr(tuning, "_raced", stops)
    with pytest.raises(KeyboardInterrupt):
        tuning.tune(["python", "train.py"], tmp_path, tmp_path / "out", tuning.Wishes(), io.StringIO())
    assert [(each.bytes, each.copies) for each in raced] == [(3 << 20, 9) if device else (5 << 20, 0)]


def test_without_a_device_there_are_as_many_as_cores_and_memory_hold(tmp_path: Path) -> None:
    given = Report(verdict=Verdict("compute", ""), step=Told(10, 100, 100))
    assert copies(given) == 0
    assert copies(replace(given, device=Device("gpu", 0.9, None))) == 2, "whose memory nobody knows"
    referee = LiveReferee(Program(("python", "train.py"), tmp_path, 1e8, bytes=1 << 20), tmp_path)
    referee._cores = 64
    assert referee.at_once() == 64
    referee.close()


@pytest.mark.parametrize(("loop", "told"), [("2:0", "unverified"), ("5:0", "exact")])
def test_a_program_with_an_update_of_its_own_is_compared_step_by_step(
    loop: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls are of acting, of learning and of tests in turn: so many samples in one on average say nothing."""
    rows = [Row(step, trained=Calls(step, 12 * step, 99 * step), by_model=(12 * step,)) for step in range(1, 40)]
    accounts = ((Account(rows=rows), Account(rows=rows)), (Account(rows=rows),))
    edits = MappingProxyType({"faster": EditOnTrial(ProgramEdit("faster"))})
    referee = LiveReferee(Program(("python", "train.py"), tmp_path, 1e8, loop=loop, edits=edits), tmp_path)
    monkeypatch.setattr(referee.guarding, "rows_per_call", lambda _: (1.0, 6.6))
    found = Measured(verdict="faster", speedup=Speedup(2.8, 2.7, 2.9), accounts=accounts)
    assert referee.with_account(Guarded("exact"), found, ("faster",)).verdict == told
    referee.close()


@pytest.mark.parametrize(("beside", "told"), [((), "changed"), (("packed_masks",), "bounded")])
def test_other_masks_beside_an_edit_may_be_other_batches(beside: tuple[str, ...], told: str, tmp_path: Path) -> None:
    """Dropout and a loader without workers draw from one stream: masks that are drawn otherwise are other batches."""
    rows = [Row(step, trained=Calls(step, 12 * step, 99 * step), by_model=(12 * step,)) for step in range(1, 40)]
    ours, theirs = ([Batch(number, "", f"{who}{number}") for number in range(1, 9)] for who in ("a", "b"))
    accounts = ((Account(rows=rows, batches=ours),) * 2, (Account(rows=rows, batches=theirs),))
    edits = MappingProxyType({"faster": EditOnTrial(ProgramEdit("faster"))})
    referee = LiveReferee(Program(("python", "train.py"), tmp_path, 1e8, edits=edits), tmp_path)
    found = Measured(verdict="faster", speedup=Speedup(1.2, 1.1, 1.3), accounts=accounts)
    assert referee.with_account(Guarded("exact"), found, ("faster", *beside)).verdict == told
    referee.close()


@pytest.mark.parametrize("late", [1, 2])
def test_each_rank_of_a_job_is_held_against_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    def judge(baseline: Observation, candidate: Observation, **runs: Any) -> Guarded:
        same = baseline.steps[0].losses == candidate.steps[0].losses
        return Guarded("exact") if same else Guarded("wrong", ("losses differ",))

    monkeypatch.setattr(guard_runs, "judge", judge)
    means = Means()
    means.others = lambda wanted: [
        observation("data", 1.0 + 0.5 * (rank == late and bool(wanted.stack))) for rank in (1, 2)
    ]
    found = Guarding(means, tmp_path, 1e8).judged(("fused_optimizer",))
    assert found.red and found.reasons == (f"on rank {late}: losses differ",)
    means.others = lambda wanted: [observation("data", 2.0)]
    assert Guarding(means, tmp_path, 1e8).judged(("fused_optimizer",)).green


@pytest.mark.parametrize(("plain", "changed", "green"), [("a", "a", True), ("a", "b", False), ("b", "c", True)])
def test_ranks_that_were_equal_stay_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: str, changed: str, green: bool
) -> None:
    def weights(digest: str) -> Observation:
        return Observation(steps=(Step(updates={"w": Seen((2,), "torch.float32", digest, 1.0, 0, b"")}),))

    monkeypatch.setattr(guard_runs, "judge", lambda *runs, **how: Guarded("equivalent"))
    means = Means()
    means.made = lambda wanted: weights("a")
    means.others = lambda wanted: [weights(changed if wanted.stack else plain)]
    found = Guarding(means, tmp_path, 1e8).judged(("fused_optimizer",))
    assert found.green == green and (green or found.reasons == (guard_runs.APART,))


def test_a_rank_without_a_record_is_not_passed_over(tmp_path: Path) -> None:
    arm = Arm([sys.executable, "-c", "pass"], tmp_path / "arm")
    write(Observation(ranks=3), tmp_path / "observation")
    write(Observation(), tmp_path / "observation.rank1")
    monkey: Any = arm
    monkey._folder, monkey._launch, monkey._expect = tmp_path, lambda *how, **more: None, lambda *how: None
    monkey._process = subprocess.Popen([sys.executable, "-c", "pass"])
    with pytest.raises(ArmError, match="rank 2 left no record"):
        arm.observe(3)
