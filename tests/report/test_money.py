"""Money, throughput and slow steps: computed by hand here, shown by every verb that shows a step."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr import units
from gobrrr.cli import options
from gobrrr.cli.main import main
from gobrrr.errors import GobrrrError
from gobrrr.ledger.comparison import side
from gobrrr.ledger.loading.lengths import samples_per_step, steps_per_epoch
from gobrrr.ledger.model.ledger import StepStats
from gobrrr.ledger.steps.step_stats import percentile
from gobrrr.recording.model.facts import Facts, LoaderFacts
from gobrrr.report.forms.json import from_json, to_json
from gobrrr.report.text.report import brief, render
from gobrrr.report.told.money import pay_back, priced, sentences
from gobrrr.rules.model.finding import Rehearsed, Saving
from gobrrr.rules.verdict.build import build
from gobrrr.rules.verdict.report import Report, Tokens
from tests.support import report_samples as samples
from tests.support.shown import as_comment

MS = samples.MS


def timed() -> Report:
    """A step of 36 ms: an hour holds 100,000. 32 samples each, 800 real tokens a step, an epoch of 1000 steps."""
    found = samples.finding(
        "BRR102", 18.0,
        saving=Saving(9 * MS, 18 * MS, 27 * MS),
        rehearsed=(Rehearsed("bf16_autocast", Saving(9 * MS, 18 * MS, 27 * MS)), Rehearsed("compile", Saving())),
    )  # fmt: skip
    step = samples.step(36.0, p95_ns=40 * MS, p99_ns=50 * MS)
    ledger = samples.starved_ledger(
        step=step, accounts=samples.accounts(36.0), samples_per_step=32.0, steps_per_epoch=1000
    )
    return replace(build(ledger, None, [found, samples.doubt("note")]), tokens=Tokens(0.9, 7, 800 / 0.036))


def test_what_a_step_costs_is_its_part_of_an_hour() -> None:
    money = priced(timed(), 3.0).money
    assert money is not None and money.step == pytest.approx(3.0 / 100_000)
    assert money.epoch == pytest.approx(0.03) and money.million_samples == pytest.approx(3.0 * 1e6 / 3_200_000)
    assert money.million_tokens == pytest.approx(3.0 * 1e6 / 80_000_000)
    (waste,) = money.wastes  # a doubt costs nothing
    assert (waste.low, waste.expected, waste.ceiling) == pytest.approx((0.75, 1.5, 2.25))
    assert waste.remedies == (("bf16_autocast", pytest.approx(1.5)),)  # the loser saves nothing


def test_what_lies_in_slow_steps_is_its_part_of_the_mean_one() -> None:
    """18 of 72 ms, where the usual step takes 36."""
    report = timed()
    rare = tuple(replace(each, rare=True) for each in report.findings)
    money = priced(replace(report, step=replace(report.step, outlier_ns=36 * MS), findings=rare), 3.0).money
    assert money is not None and money.wastes[0].expected == pytest.approx(0.75)


def test_rates_and_epochs_have_their_slow_steps_too() -> None:
    """Every tenth step evaluates: 36 ms in the median, 72 on average, and an epoch of 1000 takes 72 s."""
    step = samples.step(36.0, outlier_ns=36 * MS, mean_ns=72 * MS)
    ledger = samples.starved_ledger(
        step=step, accounts=samples.accounts(36.0), samples_per_step=32.0, steps_per_epoch=1000
    )
    report = priced(build(ledger, None, []), 3.0)
    money = report.money
    assert report.step.samples_per_s == pytest.approx(32 / 0.072)
    assert money is not None and money.step == pytest.approx(3.0 / 100_000)
    assert money.epoch == pytest.approx(0.06) and money.million_samples == pytest.approx(3.0 * 1e6 / 1_600_000)
    assert side(ledger, "", (), "").samples_per_s == pytest.approx(32 / 0.072)


def test_a_step_that_is_a_mean_has_its_slow_steps_already() -> None:
    """As a trace's: 36 ms in the median, 72 in the mean that is told."""
    step = samples.step(72.0, outlier_ns=36 * MS, mean_ns=72 * MS, averaged=True)
    ledger = samples.starved_ledger(step=step, accounts=samples.accounts(72.0), samples_per_step=32.0)
    report = build(ledger, None, [])
    assert report.step.samples_per_s == pytest.approx(32 / 0.072)
    assert report.step.outlier_ns == 0 and report.step.whole_ns(rare=True) == report.step.plain_wall_ns


def test_what_is_not_known_is_not_priced() -> None:
    bare = build(samples.starved_ledger(), None, [])
    money = priced(bare, 3.0).money
    assert money is not None and (money.epoch, money.million_samples, money.million_tokens) == (None, None, None)
    assert priced(bare, None) == bare
    nothing = build(samples.starved_ledger(step=StepStats()), None, [])
    assert priced(nothing, 3.0) == nothing


def test_no_finding_wastes_more_than_the_hour() -> None:
    between = samples.finding("BRR306", 900.0, saving=Saving(0.0, 900 * MS, 1800 * MS), between=True)
    report = priced(build(samples.starved_ledger(), None, [between]), 2.0)
    assert report.money is not None and report.money.wastes[0].ceiling == 2.0


SAID = (
    "at 3.00 per hour a step costs 0.0000300, an epoch 0.0300, a million samples 0.94, a million tokens 0.0375",
    "BRR102 wastes 1.50 per hour (0.75 to 2.25): bf16_autocast saves 1.50",
)
PACE = "p95 40.0 ms, p99 50.0 ms; 889 samples/s, 22,222 tokens/s"


def test_it_is_said_in_every_form() -> None:
    report = priced(timed(), 3.0)
    assert report.money is not None and tuple(sentences(report.money)) == SAID
    for text in (brief(report), render(report), as_comment(report)):
        flat = " ".join(text.replace("\\", "").split())
        assert all(said in flat for said in (*SAID, PACE))
    again = from_json(to_json(report)).money
    assert again is not None and tuple(sentences(again)) == SAID
    assert "money" not in brief(timed()) and json.loads(to_json(timed()))["money"] is None


def test_a_trial_has_paid_when_it_has_saved_what_it_cost() -> None:
    """Half an hour at 4.00 costs 2.00; a quarter less time saves 1.00 an hour."""
    assert pay_back(0.25, 1800.0, 4.0) == "it cost 2.00; then 1.00 of every 4.00 per hour stay with you"


@pytest.mark.parametrize(
    ("amount", "said"), [(1234.5, "1,234.50"), (0.1, "0.10"), (0.000154, "0.000154"), (0.0996, "0.0996"), (0, "0.00"),
                         (1.5e-7, "1.5e-07"), (-3.0, "-3.00")],
)  # fmt: skip
def test_money_as_text(amount: float, said: str) -> None:
    assert units.money(amount) == said


def test_the_price_is_the_options_before_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    options.add_price(parser)
    assert options.price(parser.parse_args([])) is None
    monkeypatch.setenv(options.PRICE_VARIABLE, "2.5")
    assert options.price(parser.parse_args([])) == 2.5
    assert options.price(parser.parse_args(["--price-per-hour", "4"])) == 4.0
    for wrong in ("two", "0", "-1", "inf"):
        monkeypatch.setenv(options.PRICE_VARIABLE, wrong)
        with pytest.raises(GobrrrError, match=options.PRICE_VARIABLE):
            options.price(parser.parse_args([]))


def test_a_price_that_is_none_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_bytes(to_json(timed()))
    assert main(["report", "report.json", "--price-per-hour", "3"]) == 0
    assert "a million samples 0.94" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv(options.PRICE_VARIABLE, "nonsense")
    Path("train.py").write_text("open('started', 'w')")
    for verb in ("run", "check", "tune"):
        assert main([verb, "train.py"]) == 2
        assert options.PRICE_VARIABLE in capsys.readouterr().err and not Path("started").exists()


@pytest.mark.parametrize(
    ("loader", "count", "samples_of_it", "epoch"),
    [
        (LoaderFacts(1, batch_size=32, num_batches=100, length=3200), 100, 32.0, 100.0),
        (LoaderFacts(1, batch_size=32, num_batches=400, length=3200), 100, 128.0, 25.0),  # four batches a step
        (LoaderFacts(1, num_batches=100), 100, None, None),
        (LoaderFacts(1, batch_size=32, num_batches=100, length=100, one_by_one=False), 100, 32.0, None),
        (LoaderFacts(1, batch_size=32, num_batches=100), 0, None, None),
    ],
)
def test_samples_of_a_step_and_steps_of_an_epoch(
    loader: LoaderFacts, count: int, samples_of_it: float | None, epoch: float | None
) -> None:
    facts = Facts(loaders=(LoaderFacts(2, batch_size=7, num_batches=3), loader))
    found = samples_per_step(facts, StepStats(count=count, batches=1), None)
    assert found == samples_of_it and steps_per_epoch(facts, found) == epoch
    assert samples_per_step(facts, StepStats(count=count, batches=0), None) is None  # it has its data from elsewhere


def test_a_percentile_needs_a_step_beyond_it() -> None:
    walls = np.arange(1.0, 101.0)
    assert percentile(walls, 0.95) == pytest.approx(95.05) and percentile(walls, 0.99) == pytest.approx(99.01)
    assert percentile(walls[:99], 0.99) is None and percentile(walls[:20], 0.95) is not None
    assert percentile(walls[:19], 0.95) is None
