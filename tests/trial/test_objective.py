"""A tuning for memory: what is kept and for which price, what is a tie, and what lies below what is highest."""

from __future__ import annotations

import io
import math
from pathlib import Path

import msgspec
import pytest

from gobrrr.cli.main import main
from gobrrr.cli.verbs.tune import exit_code
from gobrrr.guard.model.verdict import Guarded
from gobrrr.pipeline import tuning as cli_tuning
from gobrrr.pipeline.tuning import recipe_of
from gobrrr.report.text import tuning_progress
from gobrrr.report.told import speedup_text as gains
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.rules.verdict.report import Report, Step, Verdict
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.lockstep import _clocked
from gobrrr.trial.race.tuning import UNCOUNTED
from gobrrr.trial.receipt import recipe
from gobrrr.trial.receipt.receipt import Receipt, Samples, Speedup, TrialResult
from gobrrr.trial.statistics import paired
from gobrrr.trial.statistics.objective import MEMORY, THROUGHPUT, TIME, WHOLE
from tests.support.race_clock import FakeReferee, tuned
from tests.support.shown import as_text

MIB = 1 << 20


def candidates(*names: str, **conflicts: str) -> list[Candidate]:
    return [Candidate(name, named=True, conflicts=frozenset(conflicts.get(name, "").split())) for name in names]


def for_memory(folder: Path, gains: dict, cuts: dict, phases: tuple[float, ...] = (1000 * MIB,), **fields) -> Receipt:
    referee = FakeReferee(gains, objective=MEMORY, phases=phases, cuts=cuts)
    return tuned(referee, candidates(*cuts, **fields), folder, seconds=600).receipt()


def test_what_lowers_the_peak_is_kept_with_both_figures_though_it_takes_longer(tmp_path: Path) -> None:
    found = for_memory(tmp_path, {"recompute": 0.8, "fused": 1.3}, {"recompute": {0: 0.6}, "fused": {}})
    assert found.kept == ("recompute",) and found.objective == "memory" and exit_code(found) == 0
    assert found.memory is not None and found.memory.median == pytest.approx(1 / 0.6, rel=0.01)
    assert found.speedup is not None and found.speedup.median == pytest.approx(0.8, rel=0.03)
    raced = {trial.remedies: trial for trial in found.trials if trial.purpose == "add"}
    assert raced[("recompute",)].verdict == "smaller" and raced[("fused",)].verdict == "equivalent"
    assert raced[("recompute",)].speedup.median == pytest.approx(0.8, rel=0.05)
    assert raced[("recompute",)].step_peak_bytes == pytest.approx((1000 * MIB, 600 * MIB), rel=0.01)
    assert {trial.objective for trial in found.trials} == {"memory"}


def test_time_keeps_nothing_of_that(tmp_path: Path) -> None:
    referee = FakeReferee({"recompute": 0.8}, cuts={"recompute": {0: 0.6}})
    found = tuned(referee, candidates("recompute"), tmp_path, seconds=600).receipt()
    assert found.kept == () and found.objective == "time" and found.memory is None
    assert found.trials[0].verdict == "inconclusive" and found.trials[0].memory is None


@pytest.mark.parametrize(("left", "verdict"), [(0.99, "equivalent"), (0.88, "smaller"), (1.2, "larger")])
def test_less_than_a_twentieth_of_the_peak_is_nothing(tmp_path: Path, left: float, verdict: str) -> None:
    found = for_memory(tmp_path, {}, {"some": {0: left}})
    assert found.trials[0].verdict == verdict
    assert found.kept == (("some",) if verdict == "smaller" else ()) and not found.likely and exit_code(found) == 0


def test_of_two_that_save_as_much_the_faster_one_is_kept(tmp_path: Path) -> None:
    gains, cuts = {"slow": 0.5, "quick": 1.0}, {"slow": {0: 0.58}, "quick": {0: 0.6}}
    assert for_memory(tmp_path, gains, cuts, slow="quick").kept == ("quick",)


@pytest.mark.parametrize("room", [1, 4])
def test_of_two_that_do_not_the_smaller_one_is_kept(tmp_path: Path, room: int) -> None:
    """One after the other, too: nothing said beforehand which of them saves more."""
    cuts = {"quick": {0: 0.6}, "slow": {0: 0.4}}
    referee = FakeReferee({"slow": 0.5}, objective=MEMORY, cuts=cuts, room=room)
    found = tuned(referee, candidates("quick", "slow", slow="quick"), tmp_path, seconds=900).receipt()
    assert found.kept == ("slow",) and {trial.remedies for trial in found.trials} >= {("quick",), ("slow",)}


def test_what_lies_below_the_highest_peak_is_cut_once_that_is_gone(tmp_path: Path) -> None:
    """Logits of 1000 MiB, then an update of 900: what halves the update changes nothing alone."""
    found = for_memory(tmp_path, {}, {"logits": {0: 0.3}, "update": {1: 0.5}}, (1000 * MIB, 900 * MIB))
    assert found.kept == ("logits", "update") and found.memory is not None
    assert found.memory.median == pytest.approx(1000 / 450, rel=0.01)
    alone = next(trial for trial in found.trials if trial.remedies == ("update",))
    assert alone.verdict == "equivalent" and alone.onto == ()


def test_trials_of_another_objective_are_not_taken_over(tmp_path: Path) -> None:
    gains, cuts = {"recompute": 0.8}, {"recompute": {0: 0.6}}
    assert for_memory(tmp_path, gains, cuts).kept == ("recompute",)
    again = FakeReferee(gains, objective=MEMORY, cuts=cuts)
    assert tuned(again, candidates("recompute"), tmp_path).kept == ("recompute",) and again.starts == []
    for_time = FakeReferee(gains, cuts=cuts)
    found = tuned(for_time, candidates("recompute"), tmp_path)
    assert ("recompute",) in for_time.starts and found.kept == ()
    assert found.take_over().endswith("for memory, which says nothing here")


def test_an_interval_is_judged_by_what_is_worth_it() -> None:
    worth = -math.log(0.95)
    assert MEMORY.verdict(worth + 0.001, 1.0) == "smaller" and MEMORY.verdict(-1.0, -worth - 0.001) == "larger"
    assert MEMORY.verdict(-0.04, 0.04) == "equivalent" and MEMORY.verdict(0.04, 0.06) == "inconclusive"
    assert MEMORY.verdict(0.02, 1.0) == MEMORY.verdict(-1.0, -0.02) == "inconclusive"
    assert (TIME.verdict(0.001, 1.0), TIME.verdict(-1.0, -0.001)) == ("faster", "slower")
    assert TIME.verdict(-0.01, 0.01) == "equivalent" and TIME.verdict(-0.03, 0.01) == "inconclusive"
    sure, none, open_ = ([[log, log]] * 3 for log in (0.2, 0.0, worth))
    verdicts = [paired.compare_rounds(each, 0.05, 0.05, 0.01, worth).verdict for each in (sure, none, open_)]
    assert verdicts == ["faster", "equivalent", "inconclusive"]
    assert MEMORY.word("faster") == "smaller" and MEMORY.word("failed") == "failed" and TIME.word("slower") == "slower"


def test_a_gain_that_is_just_what_is_worth_it_needs_no_number_of_starts() -> None:
    assert paired.units_needed(3, 0.05, 0.02, 0.05, 3, 0.05) is None
    assert paired.units_needed(3, 0.07, 0.04, 0.05, 3, 0.05) == 12


def test_what_a_block_costs() -> None:
    block = Block(800, (300, 500), peak_bytes=7, samples=32)
    assert (TIME.cost(block), MEMORY.cost(block), THROUGHPUT.cost(block)) == (400, 7, 25)
    assert THROUGHPUT.cost(block._replace(samples=0)) == THROUGHPUT.cost(block._replace(samples=None)) == 400
    batched = block._replace(rows=16, whole_ns=1600)  # a program that learns nothing
    assert (TIME.cost(batched), WHOLE.of(True).cost(batched), WHOLE.cost(block)) == (50, 100, 400)
    assert WHOLE.of(False).cost(batched) == 800 and MEMORY.of(False) is MEMORY, "unless its calls are batched otherwise"


def test_times_of_rounds_that_were_made_for_another_figure() -> None:
    ns = (100, 200, 220, 110, 400, 200, 220, 440)  # A B B A, then B A A B
    found = _clocked(Samples((0, 1, 1, 0, 1, 0, 0, 1), (1,) * 4 + (2,) * 4, ns, (1,) * 8))
    assert found.median == pytest.approx(0.5)


def test_the_report_leads_with_the_peak_and_tells_what_it_costs(tmp_path: Path) -> None:
    found = for_memory(tmp_path, {"recompute": 0.8}, {"recompute": {0: 0.6}, "fused": {}})
    text = as_text(found)
    first, flat = text.splitlines()[0], " ".join(text.split())
    assert first.startswith("Peak 600 MiB instead of 1000 MiB, -40 % (-4") and "times as fast" not in text
    assert "a step takes 1.25 times as long" in flat and "numbers match" in flat
    assert "as written" in text and "1000 MiB" in text and "600 MiB" in text
    assert "fused no difference peak +0 % (-4 to +5), a step takes 0.99 times as long (0.94 to 1.05)" in flat
    none = for_memory(tmp_path, {}, {"fused": {}})
    assert "make this program smaller with its numbers intact" in " ".join(as_text(none).split())


def test_throughput_compares_by_samples_what_time_compares_by_steps(tmp_path: Path) -> None:
    """A batch of twice as many samples that takes 1.6 times as long."""
    kept = {}
    for objective in (TIME, THROUGHPUT):
        folder = tmp_path / objective.name
        folder.mkdir()
        referee = FakeReferee({"larger": 1 / 1.6}, objective=objective, batches={"larger": 2.0})
        kept[objective.name] = tuned(referee, candidates("larger"), folder, seconds=600).receipt()
    assert kept["time"].kept == () and kept["throughput"].kept == ("larger",)
    found = kept["throughput"].speedup
    assert found is not None and found.median == pytest.approx(1.25, rel=0.02)
    assert kept["throughput"].memory is None and as_text(kept["throughput"]).startswith("1.2")
    assert "times as many samples per second" in as_text(kept["throughput"])


def test_samples_that_nobody_counted_are_said_to_be_equally_many(tmp_path: Path) -> None:
    found = {}
    for name, batches in (("counted", {}), ("uncounted", None)):
        (tmp_path / name).mkdir()
        referee = FakeReferee({"fused": 1.25}, objective=THROUGHPUT, batches=batches)
        found[name] = tuned(referee, candidates("fused"), tmp_path / name, seconds=600).receipt()
        assert found[name].kept == ("fused",)
    assert UNCOUNTED in found["uncounted"].notes and UNCOUNTED not in found["counted"].notes


def test_a_sample_is_a_part_of_the_step_in_the_report() -> None:
    rows = Samples((0, 1, 1, 0), (2, 2, 2, 2), (8,) * 4, (1,) * 4, samples=(20, 30, 30, 20))
    final = TrialResult(remedies=("a",), purpose="final", verdict="faster", objective="throughput", samples=rows)
    found = Receipt(trials=(final,), kept=("a",), objective="throughput", speedup=Speedup(1.25, 1.2, 1.3),
                    guard=Guarded("exact"), step_ns=50e6)  # fmt: skip
    assert rows.per_step(0) == 10 and rows.per_step(1) == 15
    assert "5.00 ms to 4.00 ms per sample" in as_text(found)
    of_time = msgspec.structs.replace(found, objective="time")  # samples are counted, and nobody asked for them
    assert "50.0 ms to 40.0 ms per step" in as_text(of_time)


def test_a_receipt_of_before_is_one_of_time() -> None:
    old = (
        b'{"schema": "gobrrr.receipt/1", "trials": [{"remedies": ["a"], "verdict": "faster", "samples": {"arm": [0]}}]}'
    )
    found = msgspec.json.decode(old, type=Receipt)
    assert found.objective == found.trials[0].objective == "time" and found.trials[0].samples.per_step(0) is None


def test_a_recipe_says_what_it_was_chosen_for(tmp_path: Path) -> None:
    found = for_memory(tmp_path, {"fused_optimizer": 0.8}, {"fused_optimizer": {0: 0.6}})
    text = recipe.to_toml(recipe_of(found))
    assert 'objective = "memory"' in text and recipe.parse(text, "recipe.toml").memory is not None
    plain = msgspec.structs.replace(found, objective="time", memory=None, trials=())
    assert "objective" not in recipe.to_toml(recipe_of(plain)) and "memory" not in recipe.to_toml(recipe_of(plain))


def test_candidates_for_memory_are_those_that_may_save_some(tmp_path: Path) -> None:
    step = Step(10, int(1e7), int(1e7), kind="training")
    slow = Finding("BRR208", "x", "overhead", "critical", Saving(1e5, 1e6, 2e6), "m")
    given = Report(verdict=Verdict("overhead", ""), step=step, findings=(slow,))
    found = {c.name: c for c in cli_tuning.candidates(given, cli_tuning.Wishes(objective=MEMORY))}
    assert {"activation_checkpointing", "bf16_autocast", "compile_memory_budget"} <= set(found)
    assert not {"malloc_thresholds", "loader_workers"} & set(found)
    assert all(candidate.named for candidate in found.values()), "what the ledger allows of time is no matter"
    inference = msgspec.structs.replace(given, step=msgspec.structs.replace(given.step, kind="inference"))
    left = {c.name for c in cli_tuning.candidates(inference, cli_tuning.Wishes(objective=MEMORY))}
    assert {"compile", "bf16_autocast"} <= left and not {"activation_checkpointing", "fused_optimizer"} & left
    only = cli_tuning.Wishes(objective=MEMORY, only=("malloc_thresholds",))
    assert {c.name for c in cli_tuning.candidates(given, only)} == {"malloc_thresholds"}


def test_what_to_type_next_goes_on_with_the_same_objective(tmp_path: Path) -> None:
    cut = Receipt(complete=False, objective="memory")
    assert "tune --objective memory --resume" in cli_tuning._next_command(tmp_path, cut, ["train.py"])
    timed = Receipt(complete=False)
    assert "--objective" not in cli_tuning._next_command(tmp_path, timed, ["train.py"])


def test_an_objective_that_there_is_not_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--objective", "beauty", "train.py"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "'beauty' (choose from " in said[0] and len(said) == 2


def test_while_it_runs_lines_speak_of_the_peak(tmp_path: Path) -> None:
    out = io.StringIO()
    referee = FakeReferee({}, objective=MEMORY, cuts={"recompute": {0: 0.6}, "fused": {}})
    lines = tuning_progress.PlainLines(out, 600, lambda: 0.0)
    tuned(referee, candidates("recompute", "fused"), tmp_path, seconds=600, listener=lines)
    said = out.getvalue()
    assert "recompute: smaller; numerics not checked yet" in said
    assert "fused: no difference, peak" in said and "recompute: smaller, peak -40 %" in said
    assert (
        tuning_progress.looks("equivalent", MEMORY)
        == "looks equally large"
        != tuning_progress.looks("equivalent", TIME)
    )


@pytest.mark.parametrize(("low", "median", "high", "said"), [
    (0.96, 1.0, 1.04, "a step takes as long as before"),
    (0.8, 0.9, 1.04, "a step takes 1.11 times as long (0.96 to 1.25)"),
    (0.8, 1.0, 1.25, "a step takes 1.00 times as long (0.80 to 1.25)"),
    (0.4, 0.5, 0.8, "a step takes 2.00 times as long (1.25 to 2.50)"),
    (1.25, 1.5, 2.0, "a step is 1.50 times as fast (1.25 to 2.00)"),
])  # fmt: skip
def test_what_a_step_costs_is_said_as_surely_as_it_is_known(low: float, median: float, high: float, said: str) -> None:
    assert gains.price(Speedup(median=median, low=low, high=high)) == said
