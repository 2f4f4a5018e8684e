"""Energy as what is made smaller: counters between two looks, blocks that are long enough, verdicts and their words."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Set
from pathlib import Path

import msgspec
import pytest

from gobrrr.errors import GobrrrError
from gobrrr.guard.model.verdict import Guarded
from gobrrr.machine.gauges import counter as counters
from gobrrr.machine.gauges import sampler
from gobrrr.machine.gauges.counter import EnergyCounter
from gobrrr.machine.gauges.readings import Head, Reading, Sample
from gobrrr.pipeline import proving, sweeping, tuning
from gobrrr.pipeline.tuning import recipe_of
from gobrrr.report.forms.formats import PLAIN
from gobrrr.report.html.tuning_page import parts
from gobrrr.report.memory.sweep import headline
from gobrrr.report.text import tuning_progress
from gobrrr.rules.verdict.report import Report, Step, Verdict
from gobrrr.trial.arm.arm import Arm, ArmError, cost_of
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.arm.side import Side
from gobrrr.trial.edit.setting import Setting
from gobrrr.trial.race.candidates import Candidate, Plan
from gobrrr.trial.race.lockstep import measure
from gobrrr.trial.race.sweep import Point
from gobrrr.trial.receipt import recipe
from gobrrr.trial.receipt.receipt import Receipt, Samples, Speedup, TrialResult
from gobrrr.trial.statistics.objective import ENERGY, TIME
from tests.support.race_clock import FakeReferee, tuned
from tests.support.shown import as_text
from tests.trial.test_gauge import LOADED

MIB = 1 << 20


class Driver:
    """A board for each row: (joules now, bytes used, bytes of the arm's); what is named is only told where asked."""

    def __init__(self, *rows: tuple[float | None, int, int | None]) -> None:
        self.rows = rows

    head = Head((), sampler.NO_ENERGY)

    def look(self, ours: Set[int] | None = None) -> Sample:
        told = (Reading(joules=j, used=used, ours=held if ours else None) for j, used, held in self.rows)
        return Sample(0, tuple(told))

    def close(self) -> None: ...


def spent(before: Driver, after: Driver, grown: tuple[int, ...] = ()) -> float | None:
    """What a counter says that was made when `grown` was in use, then saw `before` and `after`."""
    driver = Driver(*((row[0], used, None) for row, used in zip(before.rows, grown or (0,) * 9, strict=False)))
    counter = EnergyCounter(driver)
    driver.rows = before.rows
    since = counter.look({1})
    driver.rows = after.rows
    return counter.joules(since, counter.look())


def test_devices_that_the_processes_hold_memory_of_count_and_no_others() -> None:
    before = Driver((100.0, 900 * MIB, None), (50.0, 900 * MIB, 700 * MIB))
    assert spent(before, Driver((700.0, 0, None), (450.0, 0, None))) == 400.0


def test_where_the_driver_names_nobody_it_is_those_whose_memory_has_grown() -> None:
    before = Driver((100.0, 900 * MIB, None), (50.0, 900 * MIB, None))
    after = Driver((700.0, 0, None), (450.0, 0, None))
    assert spent(before, after, grown=(900 * MIB, 100 * MIB)) == 400.0
    assert spent(before, after, grown=(0, 0)) == 1000.0


@pytest.mark.parametrize("after", [None, 50.0, 3.0])
def test_a_counter_that_is_not_there_or_stands_still_or_begins_anew_gives_no_figure(after: float | None) -> None:
    before = Driver((50.0 if after else None, 0, MIB), (1.0, 0, MIB))
    assert spent(before, Driver((after, 0, None), (900.0, 0, None))) is None


@pytest.mark.parametrize(("before", "after"), [(None, 1.5e6), (1.5e6, None)])
def test_a_counter_that_one_look_could_not_read_gives_no_figure(before: float | None, after: float | None) -> None:
    assert spent(Driver((before, 0, MIB)), Driver((after, 0, None))) is None
    counter = EnergyCounter(Driver((5.0, 0, MIB)))
    counter._first = Sample(0, counter._first.devices, 1.0)
    since, until = Sample(0, (Reading(joules=5.0, ours=MIB),), before), Sample(0, (Reading(joules=9.0),), after)
    assert counter.joules(since, until) is None


def test_the_processor_counts_beside_devices_and_alone() -> None:
    counter = EnergyCounter(Driver((5.0, 0, MIB)))
    since, until = ((Reading(joules=5.0, ours=MIB),), 10.0), ((Reading(joules=25.0),), 40.0)
    assert counter.joules(Sample(0, *since), Sample(0, *until)) == 50.0
    alone = EnergyCounter(Driver())
    assert (
        alone.joules(Sample(0, (), 10.0), Sample(0, (), 40.0)) == 30.0
        and alone.joules(Sample(0, (), None), Sample(0, (), None)) is None
    )


def test_where_nothing_counts_that_is_one_line_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "Beside", lambda: Driver((None, 0, None)))
    command, out = [sys.executable, "train.py"], tmp_path / "out"
    wanted = sweeping.Wanted(Setting("batch", "x", "8"), objective=ENERGY)
    starts = (
        lambda: tuning.tune(command, tmp_path, out, tuning.Wishes(objective=ENERGY), sys.stderr),
        lambda: proving.prove(command, tmp_path, out, proving.Asked((), objective=ENERGY), sys.stderr),
        lambda: sweeping.sweep(command, tmp_path, out, wanted, sys.stderr),
    )
    for start in starts:
        with pytest.raises(GobrrrError, match=r"^energy is not measurable here: the processor's energy \(RAPL\)"):
            start()
    assert not out.exists()


class Clock:
    """A counter of 100 W by the clock."""

    def look(self, ours: Set[int] | None = None) -> float:
        self.asked = ours or self.asked
        return time.monotonic()

    def joules(self, since: float, until: float) -> float:
        return 100.0 * (until - since)

    asked: Set[int] = frozenset()


@pytest.mark.parametrize("account", [False, True])
def test_an_arms_block_has_the_joules_between_its_grant_and_its_end(tmp_path: Path, account: bool) -> None:
    """But for the share of gobrrr's own work, where it keeps an account. One step is too short: more follow."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(LOADED)
    counter = Clock()
    made = Arm([sys.executable, "train.py"], tmp_path / "arm", source=tmp_path / "work", counter=counter,
               account=account)  # fmt: skip
    try:
        made.start(120)
        assert made.run(3).joules is None, "it warms up"
        block = made.run(1, 1e9)
        assert block.referee_ns >= 2e9 and len(block.walls) > 10, "a counter moves in steps of 0.1 s"
        assert sum(block.walls) == pytest.approx(block.ns, rel=0.05) and block.samples is None
        own = sum(clock.own_ns for clock in made.account.clocks) if made.account is not None else 0
        part = block.whole_ns / (block.whole_ns + own)
        assert block.joules == pytest.approx(100 * part * block.referee_ns / 1e9, rel=0.02) and (part < 0.99) == account
        assert made._process is not None and made._process.pid in counter.asked
    finally:
        made.end()


def candidates(*names: str) -> list[Candidate]:
    return [Candidate(name, named=True) for name in names]


def for_energy(folder: Path, gains: dict, power: dict, **fields) -> Receipt:
    referee = FakeReferee(gains, objective=ENERGY, power=power, **fields)
    return tuned(referee, candidates(*dict.fromkeys([*gains, *power])), folder, seconds=1800).receipt()


def test_a_fifth_less_at_the_same_time_is_found_and_as_much_is_equivalent(tmp_path: Path) -> None:
    found = for_energy(tmp_path, {}, {"frugal": 0.8, "same": 1.0})
    assert found.kept == ("frugal",) and found.objective == "energy"
    assert found.energy is not None and found.energy.median == pytest.approx(1.25, rel=0.02)
    assert found.speedup is not None and found.speedup.median == pytest.approx(1.0, abs=0.02)
    raced = {trial.remedies: trial for trial in found.trials if trial.purpose == "add" and not trial.onto}
    frugal, same = raced[("frugal",)], raced[("same",)]
    assert frugal.verdict == "less energy" and same.verdict in ("equivalent", "inconclusive")
    assert frugal.step_joules == pytest.approx((300 * 0.02, 240 * 0.02), rel=0.03)
    assert all(ns >= 2e9 for ns in frugal.samples.ns), "shorter blocks have no energy"
    joules, steps, arms = frugal.samples.joules, frugal.samples.steps, frugal.samples.arm
    watts = {arm: joule / ns * 1e9 for arm, joule, ns in zip(arms, joules, frugal.samples.ns, strict=True)}
    assert watts == pytest.approx({0: 300.0, 1: 240.0}) and len(joules) == len(steps)


def test_equal_arms_are_equivalent_and_noise_settles_nothing() -> None:
    """As `prove` compares: in fresh processes, without a race."""
    verdicts = {}
    for noise, power in ((0.002, 1.0), (0.002, 0.8), (0.002, 1.2), (0.4, 0.97)):
        machine = {"noise": noise, "burst": 0.0}
        referee = FakeReferee({}, objective=ENERGY, power={"it": power}, machine=machine, seed=1)
        verdicts[noise, power] = referee.measure(Plan((), ("it",)), 3600).verdict
    assert [*verdicts.values()] == ["equivalent", "less energy", "more energy", "inconclusive"]


def test_a_race_leaves_the_proof_the_time_that_its_longer_blocks_take(tmp_path: Path) -> None:
    power = {"frugal": 0.85, **dict.fromkeys("abcdefgh", 0.97)}
    referee = FakeReferee({}, objective=ENERGY, power=power, room=3, guard_s=10)
    found = tuned(referee, candidates(*power), tmp_path, seconds=450).receipt()
    assert found.kept and found.trials[-1].purpose == "final" and referee.clock() < 450


def test_more_energy_in_less_time_is_not_kept(tmp_path: Path) -> None:
    assert not for_energy(tmp_path, {"hot": 1.2}, {"hot": 1.5}).kept
    measured = FakeReferee({"hot": 1.2}, objective=ENERGY, power={"hot": 1.5}).measure(Plan((), ("hot",)), 3600)
    assert measured.verdict == "more energy" and measured.energy.median == pytest.approx(1.2 / 1.5, rel=0.02)
    assert measured.speedup.median == pytest.approx(1.2)


def test_the_receipt_tells_the_energy_first_and_the_time_beside_it(tmp_path: Path) -> None:
    found = for_energy(tmp_path, {"frugal": 1.25}, {"frugal": 0.9, "same": 1.0})
    text = " ".join(as_text(found).split())
    assert text.startswith("0.72 of the energy (95 % interval 0.") and "a step is 1.25 times as fast" in text
    assert "of the energy (0." in text and "1.25x as fast" in text and "times as fast (95 %" not in text
    page = parts(found, PLAIN)
    assert page["sure"] and "energy as written" in page["pairs"]
    told = recipe_of(msgspec.structs.replace(found, kept=("fused_optimizer",)))
    assert recipe.parse(recipe.to_toml(told), "recipe.toml").energy == pytest.approx((1.39, 1.28, 1.5), rel=0.02)
    none = for_energy(tmp_path, {}, {"same": 1.0})
    assert "to make this program less energy-hungry with its numbers" in " ".join(as_text(none).split())


def test_a_receipts_first_sentence_has_the_joules_of_a_step() -> None:
    final = TrialResult(remedies=("a",), purpose="final", verdict="less energy", objective="energy",
                        step_joules=(12.5, 10.0))  # fmt: skip
    found = Receipt(trials=(final,), kept=("a",), objective="energy", energy=Speedup(1.25, 1.2, 1.3),
                    speedup=Speedup(1.0, 0.99, 1.01), guard=Guarded("exact"))  # fmt: skip
    said = "0.80 of the energy (95 % interval 0.77 to 0.83), 12.5 J to 10.0 J per step; a step takes as long as before"
    assert " ".join(as_text(found).split()).startswith(said)
    proof = msgspec.structs.replace(found, verb="prove", trials=(msgspec.structs.replace(
        final, energy=found.energy, speedup=found.speedup, guard=found.guard),))  # fmt: skip
    assert as_text(proof).startswith("0.80 of the energy (0.77 to 0.83), 1.00x as fast; numbers match")


def test_while_it_runs_lines_say_less_energy(tmp_path: Path) -> None:
    out = io.StringIO()
    referee = FakeReferee({}, objective=ENERGY, power={"frugal": 0.8})
    tuned(referee, candidates("frugal"), tmp_path, seconds=1800,
          listener=tuning_progress.PlainLines(out, 600, lambda: 0.0))  # fmt: skip
    assert "frugal: less energy; numerics not checked yet" in out.getvalue()
    assert tuning_progress.looks("less energy", ENERGY) == "looks less energy-hungry"


def test_samples_of_an_arm_have_the_median_of_their_joules_per_step() -> None:
    rows = Samples((0, 1, 0, 1, 0), (2, 2, 2, 2, 2), (1,) * 5, (1,) * 5, joules=(8.0, 6.0, 10.0, 6.4, None))
    assert rows.energy(0) == 4.5 and rows.energy(1) == pytest.approx(3.1) and Samples().energy(0) is None


class Unmeasured:
    """An arm whose counter stands still."""

    def __init__(self) -> None:
        self.applied, self.declined = {}, {}
        self.start_seconds, self.peak_bytes = 1.0, 0

    def start(self, seconds: float = 0.0) -> None: ...

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        return Block(steps * 10**8, (10**8,) * steps)

    def end(self) -> None: ...

    def resident(self) -> int:
        return 0


def test_a_block_without_a_figure_ends_the_comparison_with_its_reason(tmp_path: Path) -> None:
    sides = [Side(lambda _: Unmeasured(), tmp_path / name, ()) for name in ("a", "b")]
    found = measure(*sides, seed=0, seconds=60, objective=ENERGY)
    assert found.verdict == "failed" and found.reason.startswith("no energy of a block of 2.4 s: a counter stood still")
    with pytest.raises(ArmError):
        cost_of(Block(1, (1,)), ENERGY)
    assert cost_of(Block(4, (2, 2)), TIME) == 2 and cost_of(Block(4, (2, 2), joules=6.0), ENERGY) == 3.0
    assert cost_of(Block(4, (2, 2), joules=6.0, rows=6), ENERGY.of(True)) == 1.0
    assert cost_of(Block(4, (2, 2), joules=6.0, rows=6), ENERGY.of(False)) == 3.0


def test_a_sweep_for_energy_names_the_value_with_the_least_joules_per_sample() -> None:
    points = [Point("8", 1e7, 1e7, 1e7, 1e7, 9, blocks=3, joules=4.0), Point("32", 4.2e7, 4e7, 5e7, 5e7, 9, blocks=3,
              joules=9.6), Point("64", 8e7, 8e7, 8e7, 8e7, 9, blocks=3, joules=32.0)]  # fmt: skip
    report = Report(verdict=Verdict("x", ""), step=Step(10, int(1e7), int(1e7)))
    for_time = sweeping.Wanted(Setting("batch", "8", "x"))
    found = sweeping.swept(points, report, for_time._replace(objective=ENERGY))
    assert (found.best, sweeping.swept(points, report, for_time).best) == ("32", "8")
    assert headline(found) == "batch 32 takes least energy, 300 mJ per sample: 0.60 of the energy of 8."
    assert "energy/sample" in as_text(found) and "500 mJ" in as_text(found)
