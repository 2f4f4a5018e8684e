"""Arms of a race that die, or outlive the time: who is blamed, who stays alive, and whose start counts."""

from __future__ import annotations

import math

import pytest

from gobrrr.rules.model.finding import Saving
from gobrrr.trial.arm.arm import SPENT, ArmError
from gobrrr.trial.arm.live_arms import LATE
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.race import Listener, Racing
from gobrrr.trial.race.race_round import Heat, Stack
from gobrrr.trial.race.search import Race
from gobrrr.trial.receipt.receipt import TrialResult
from tests.support.race_clock import MS, FakeReferee


class Mortal(FakeReferee):
    """Its arm of `who` raises in block number `at`."""

    def __init__(self, gains: dict[str, float], who: Stack, at: int, reason: str = "it was killed", **fields) -> None:
        super().__init__(gains, **fields)
        self.who, self.at, self.reason, self.blocks = who, at, reason, 0
        self.most = 0

    def block(self, stack: Stack, steps: int):
        self.most = max(self.most, len(self.alive))
        self.blocks += stack == self.who
        if stack == self.who and self.blocks >= self.at:
            raise ArmError(self.reason)
        return super().block(stack, steps)


def raced(referee: FakeReferee, *names: str, seconds: float = 900.0) -> tuple[Racing, Race, list[TrialResult]]:
    race = Race([Candidate(name, Saving(0.0, 5 * MS, 10 * MS)) for name in names], referee.step(()))
    kept: list[TrialResult] = []
    racing = Racing(race, referee, lambda: seconds, kept.append, Listener(), referee.clock)
    racing.run()
    return racing, race, kept


def test_blocks_are_sized_by_steps_that_were_measured_alone() -> None:
    """While they were started beside each other steps took 60 times as long."""

    asked: list[int] = []

    class Crowded(FakeReferee):
        def started(self, stack: Stack) -> tuple[float, float]:
            return 6.0, 60 * self.step(stack)

        def block(self, stack: Stack, steps: int):
            asked.append(steps)
            return super().block(stack, steps)

    referee = Crowded({"x": 1.3}, step_ns=20 * MS)
    racing, _, _ = raced(referee, "x")
    assert asked[0] == 1 and asked[-1] == 4, "50 ms of the faster one"
    assert racing.pace(("x",)).step_ns < 25 * MS


def test_nobody_failed_where_the_program_as_it_is_died() -> None:
    """They are tried again by --resume; what is known of them until then stays known."""
    racing, race, kept = raced(Mortal({"x": 1.001, "y": 1.001}, (), at=5), "x", "y")
    assert racing.broken == "it was killed"
    assert [result.verdict for result in kept] == ["inconclusive", "inconclusive"] and not race.refused


class Heats(Listener):
    """The contenders that still run whenever a heat is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Stack, ...]] = []

    def heat(self, heat) -> None:
        self.told.append(heat.live)


def heats(referee: FakeReferee, *names: str) -> tuple[Race, list[tuple[Stack, ...]], dict[Stack, str]]:
    """Who ran in which, the best expected first."""
    promised = {name: Saving(0.0, (9 - n) * MS, 10 * MS) for n, name in enumerate(names)}
    race = Race([Candidate(name, saving) for name, saving in promised.items()], referee.step(()))
    listener, kept = Heats(), []
    Racing(race, referee, lambda: 900.0, kept.append, listener, referee.clock).run()
    return race, listener.told, {each.remedies: each.verdict for each in kept if not each.onto}


def test_who_cannot_start_gives_its_place_to_the_next_at_once() -> None:
    """Of a BERT three of four openers never took hold, and then there was no time for what brings 1.4."""
    referee = FakeReferee({"a": 1.3, "c": 1.2, "d": 1.2}, broken=("b", "c"), room=2)
    race, told, verdicts = heats(referee, "a", "b", "c", "d")
    assert told[:3] == [(("a",), ("b",)), (("a",), ("c",)), (("a",), ("d",))]
    assert referee.starts[:5] == [(), ("a",), ("b",), ("c",), ("d",)]
    assert verdicts[("d",)] == "faster" and verdicts[("b",)] == verdicts[("c",)] == "failed"
    assert race.refused == {"b", "c"}


@pytest.mark.parametrize("broken", [("a", "b"), ("b",)], ids=["nobody is left to wait", "only what compiles waits"])
def test_places_stay_empty_where_nobody_runs_or_compiling_would_be_waited_for(broken: tuple[str, ...]) -> None:
    referee = FakeReferee({"a": 1.3, "compile": 1.3}, broken=broken, room=2)
    _, told, verdicts = heats(referee, "a", "b", "compile")
    assert told[:2] == [(("a",), ("b",)), (("compile",),)] and verdicts[("compile",)] == "faster"


class Evaluates(FakeReferee):
    """A second by the clock between the steps of every block, as another loop's are; once its arms are started anew."""

    blocks = 0

    def block(self, stack: Stack, steps: int) -> Block:
        block = super().block(stack, steps)
        self.blocks += 1
        self.machine.now += 30.0 if self.blocks == 9 else block.ns / 1e9
        return block


def test_what_lies_between_steps_is_known_before_it_is_confirmed() -> None:
    """A Trainer that generates after every tenth step: a round was thought to take 12 s, and took 42."""
    for kind, slack in ((FakeReferee, 1.0), (Evaluates, 2.0)):
        referee = kind({"a": 1.3})
        race = Race([Candidate("a", Saving(0.0, MS, 10 * MS))], referee.step(()))
        racing = Racing(race, referee, lambda: 900.0, lambda _: None, Listener(), referee.clock)
        racing.run()
        assert racing.pace(("a",)).slack == pytest.approx(slack, rel=0.01)


def test_one_remedy_of_each_cause_comes_first() -> None:
    """Three for padding, two of which never take hold, beside a fused update and malloc's thresholds, which promise
    less; what compiles and its pair are looked at together as ever."""
    causes = {"bucketing": "BRR409", "cut": "BRR409", "trim": "BRR409", "fused": "BRR208", "malloc": ""}
    order = [Candidate(name, Saving(0.0, (9 - n) * MS / 20, 10 * MS), cause=cause)
             for n, (name, cause) in enumerate(causes.items())]  # fmt: skip
    referee = FakeReferee(dict.fromkeys(causes, 1.2), broken=("bucketing",), room=2)
    listener = Heats()
    race = Race(order, referee.step(()))
    Racing(race, referee, lambda: 900.0, lambda _: None, listener, referee.clock).run()
    assert listener.told[:2] == [(("bucketing",), ("fused",)), (("fused",), ("cut",))]
    assert listener.told[2] == (("trim",), ("malloc",))


def test_compile_and_its_pair_are_of_one_cause_and_start_together() -> None:
    both = [Candidate("compile", Saving(0.0, 9 * MS, 10 * MS), cause="BRR102"),
            Candidate("bf16_autocast", Saving(0.0, 8 * MS, 10 * MS), cause="BRR102")]  # fmt: skip
    heat = Race(both, 20 * MS).next(places=3)
    assert heat is not None and heat.contenders[:2] == (("compile", "bf16_autocast"), ("bf16_autocast",))


def test_an_arm_that_was_merely_late_gives_no_place_away() -> None:
    class Late(FakeReferee):
        def start(self, stacks, seconds):
            failed = super().start(stacks, seconds)
            late = {stack: f"{LATE} 1 s" for stack in stacks if stack == ("b",)}
            self.end(list(late))
            return {**failed, **late}

    race, told, _verdicts = heats(Late({"a": 1.3, "c": 1.2}, room=2), "a", "b", "c")
    assert told[:2] == [(("a",), ("b",)), (("c",),)] and "b" not in race.refused


def test_nobody_failed_where_the_time_was_spent() -> None:
    racing, race, kept = raced(Mortal({"x": 1.001, "y": 1.001}, ("x",), at=5, reason=SPENT), "x", "y")
    assert racing.broken == "" and not race.refused
    assert {result.verdict for result in kept} == {"inconclusive"}


def test_an_arm_that_dies_in_the_second_half_of_a_sweep_is_out_and_the_others_go_on() -> None:
    racing, race, kept = raced(Mortal({"x": 1.2, "y": 1.3}, ("x",), at=2), "x", "y")
    assert {result.remedies: result.verdict for result in kept} == {("x",): "failed", ("y",): "faster"}
    assert race.refused == {"x"} and racing.broken == ""
    dead = next(result for result in kept if result.remedies == ("x",))
    assert dead.reason == "it was killed" and dead.peak_bytes == (1 << 30, 1 << 30), "as it was when it was let go"


def test_only_what_others_may_be_tried_on_stays_alive() -> None:
    gains = {f"c{n}": 1.1 + 0.05 * n for n in range(6)} | {"z1": 1.012, "z2": 1.014}
    referee = Mortal(gains, ("nobody",), at=1)
    raced(referee, *gains)
    assert referee.most <= 4 + 2, "places, the program as it is, and the one that leads"


def test_on_a_device_that_holds_two_the_program_as_it_is_makes_room_for_who_is_held_against_another() -> None:
    class Full(Mortal):
        """Of a device with room for two."""

        def places(self) -> int:
            return 2 - max(1, len(self.alive))

    referee = Full({"a": 1.3, "b": 1.2, "c": 1.1}, ("nobody",), at=1)
    racing, race, kept = raced(referee, "a", "b", "c")
    assert referee.most == 2 and not racing.broken
    assert race.best() == ("a", "b", "c") and {result.verdict for result in kept} == {"faster"}


def test_where_there_is_room_nobody_makes_any() -> None:
    """The program as it is stays for the next remedy, though a heat was held against another."""

    class Roomy(Mortal):
        def end(self, stacks=None):
            ended.append([*self.alive] if stacks is None else [*stacks])
            super().end(stacks)

    ended: list[list[Stack]] = []
    racing, race, _ = raced(Roomy({"a": 1.3, "b": 1.2, "c": 1.1}, ("nobody",), at=1), "a", "b", "c")
    assert race.best() == ("a", "b", "c") and not racing.broken
    assert [() in each for each in ended] == [False] * (len(ended) - 1) + [True]


class Late(FakeReferee):
    """Arms of `who` alone come up too late, after all of the time that they are given; others at once."""

    def __init__(self, gains: dict[str, float], who: Stack, **fields) -> None:
        super().__init__(gains, **fields)
        self.who, self.given = who, 0

    def start(self, stacks, seconds: float) -> dict[Stack, str]:
        failed = super().start([stack for stack in stacks if stack != self.who], seconds)
        if self.who not in stacks:
            return failed
        self.given += 1
        self.machine.now += 50.0
        return failed | {self.who: f"{LATE} 50 s"}


def test_who_came_up_too_late_has_not_failed_and_takes_no_stack_of_its_own_along() -> None:
    """Of a language model compile + bf16 was shown to be faster; compile alone was late, and the pair was out."""
    gains = {"compile": 1.2, "bf16_autocast": 1.3}
    referee = Late(gains, ("compile",))
    _, race, kept = raced(referee, "compile", "bf16_autocast")
    late = next(result for result in kept if result.remedies == ("compile",))
    assert late.verdict == "inconclusive" and late.reason == f"{LATE} 50 s"
    assert not race.refused and set(race.best()) == {"compile", "bf16_autocast"}


def test_what_is_known_to_start_too_slowly_for_what_is_left_is_not_begun() -> None:
    racing, race, _ = raced(Late({"slow": 1.2, "z": 1.4}, ("slow",), room=1), "slow", "z", seconds=100.0)
    assert race.best() == ("z",) and racing._fits(("z",)) and racing._fits(("other",))
    assert not racing._fits(("slow",)) and not racing._fits(("slow", "z"))


def test_a_start_takes_as_long_as_that_of_any_part_or_of_what_compiles_too() -> None:
    """A stack that came late says nothing of its parts, but for what compiles."""
    racing, _, _ = raced(FakeReferee({"x": 1.3}), "x")
    racing._until = lambda: racing._clock() + 30.0
    racing._took = {(): 6.0, ("compile", "bf16_autocast"): 50.0, ("compile",): 20.0}
    assert not racing._fits(("compile",)) and not racing._fits(("compile", "fused_optimizer"))
    assert racing._fits(("fused_optimizer",)) and racing._fits(("bf16_autocast", "fused_optimizer"))
    racing._took[("bf16_autocast",)] = 40.0
    assert not racing._fits(("bf16_autocast", "fused_optimizer"))


def test_what_a_running_heat_has_shown_is_found() -> None:
    """The race may last no longer than what was shown leaves of the time, not only from the next heat on."""
    asked: list[tuple[bool, bool]] = []

    class Asks(Listener):
        def standing(self, heat) -> None:
            asked.append((bool(race.shown), bool(racing.hope())))

    referee = FakeReferee({"x": 1.5, "y": 1.012}, machine={"noise": 0.02, "burst": 0.0})
    race = Race([Candidate(name, Saving(0.0, 5 * MS, 10 * MS)) for name in ("x", "y")], referee.step(()))
    racing = Racing(race, referee, lambda: 900.0, lambda result: None, Asks(), referee.clock)
    racing.run()
    assert asked[0] == (False, False) and (False, True) in asked
    assert racing._running is None and racing.hope() == ("x",), "between heats too"


def leaning(mean: float, scatter: float, sweeps: int) -> tuple[Racing, Race, Heat]:
    """A heat of x that runs, in which nothing is shown."""
    race = Race([Candidate("x", Saving(0.0, 5 * MS, 10 * MS), risk=1)], 100 * MS)
    racing = Racing(race, FakeReferee({}), lambda: 900.0, lambda result: None, Listener())
    racing._running, racing._alive = (heat := Heat((), [("x",)])), {(), ("x",)}
    heat.verdict = lambda arm: "inconclusive"  # type: ignore[method-assign]
    for number in range(sweeps):
        heat.feed({(): [1.0, 1.0], ("x",): [math.exp(-mean + scatter * (-1) ** number)] * 2})
    return racing, race, heat


@pytest.mark.parametrize(
    ("mean", "scatter", "sweeps", "far"),
    [(0.2, 0.02, 6, True), (0.2, 0.02, 5, False), (0.09, 0.0, 6, False), (0.2, 0.6, 6, False)],
)
def test_what_leans_far_after_its_second_look_is_worth_its_proof(
    mean: float, scatter: float, sweeps: int, far: bool
) -> None:
    """By a tenth, by two standard errors, after six sweeps; shown it is not."""
    racing, race, heat = leaning(mean, scatter, sweeps)
    assert racing.hope() == (("x",) if far else ())
    race.feed(heat)
    racing._running = None
    assert racing.hope() == (("x",) if far else ()), "between heats too"
    assert race.best() == ("x",) and list(race.far()) == ([("x",)] if far else [])


def test_what_leant_far_is_no_hope_once_it_died_or_was_refused() -> None:
    racing, race, heat = leaning(0.2, 0.02, 6)
    racing._let_go([("x",)])
    assert racing.hope() == ()
    race.feed(heat)
    racing._running = None
    assert racing.hope() == ("x",)
    assert race.refuse(("x",)) == () and racing.hope() == () and race.best() == ()


def test_what_leans_far_is_confirmed_and_not_what_seems_faster_by_chance() -> None:
    race = Race([Candidate(name, Saving(0.0, 5 * MS, 10 * MS)) for name in ("x", "y")], 100 * MS)
    for name, mean in (("x", 0.12), ("y", 0.3)):
        race.settle((), (name,), "inconclusive", mean)
    assert race.best() == ("y",)
    race.likely[("x",)] = True
    assert race.best() == ("x",)
    race.likely[("y",)] = False
    assert race.best() == ("x", "y"), "what is likely comes along"


def test_a_losers_slow_start_takes_no_time_from_the_race() -> None:
    class Slow(FakeReferee):
        def started(self, stack: Stack) -> tuple[float, float]:
            return (60.0 if "y" in stack else 6.0), self.step(stack)

    racing, race, _ = raced(Slow({"x": 1.3, "y": 0.5}), "x", "y")
    assert race.best() == ("x",) and racing.pace(("x",))[:2] == pytest.approx((6.0, 20 * MS), rel=0.05)
    racing, race, _ = raced(Slow({"x": 0.5, "y": 1.3}), "x", "y")
    assert race.best() == ("y",) and racing.pace(("y",)).start_s == 12.0, "what it compiled is kept: two plain starts"


def test_what_an_interrupted_tuning_had_settled_is_gone_on_from() -> None:
    """Two winners are: the first heat is of their union beside the better one, and the plain program starts in none."""
    referee = FakeReferee({"x": 1.3, "y": 1.2})
    race = Race([Candidate(name, Saving(0.0, 5 * MS, 10 * MS)) for name in "xy"], referee.step(()))
    race.settle((), ("x",), "faster", 0.26)
    race.settle((), ("y",), "faster", 0.18)
    racing = Racing(race, referee, lambda: 900.0, lambda result: None, Listener(), referee.clock)
    racing.run()
    assert set(race.best()) == {"x", "y"} and not racing.broken
    assert racing.pace(race.best()).start_s == pytest.approx(6.0)


@pytest.mark.parametrize("first", ["x", "y", "z"])
def test_a_sweep_goes_there_and_back_though_an_arm_dies_in_it(first: str) -> None:
    """Whoever is first of the contenders dies there: the others have a block on each way all the same."""
    order: list[Stack] = []

    class Noting(Mortal):
        def block(self, stack: Stack, steps: int):
            found = super().block(stack, steps)
            order.append(stack)
            return found

    raced(Noting({"x": 1.3, "y": 1.4, "z": 1.2}, who=(first,), at=1), "x", "y", "z")
    sweep = order[:6]
    assert len(set(sweep)) == 3 and sweep == sweep[::-1]
