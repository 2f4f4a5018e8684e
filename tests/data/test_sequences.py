"""Of the lengths in a recording: whose they are, what they say of the step, and that no file makes nonsense of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.data import simulate
from gobrrr.ledger.loading.lengths import sequences
from gobrrr.ledger.model.ledger import Ledger, OpGroup, Roofline, Sequences, StepStats
from gobrrr.pipeline.judging import FINEST, simulated
from gobrrr.recording.model.facts import Facts, InputFacts, LengthFacts, LoaderFacts, ModuleFacts
from gobrrr.report.forms.json import from_json, to_json
from gobrrr.report.text.report import render
from gobrrr.rules.verdict.build import build
from tests.support.handmade import LINE, MS, op

KNOWN = LengthFacts(
    loader=1, lengths=((10, 30), (100, 10)), batches=10, rows=40, cells=40 * 128, to_longest=40 * 70, narrowest=128,
    widest=128, source="mask",
)  # fmt: skip
GIVEN = InputFacts((4, 128), "int64", 4096, span=LINE)
STEP = StepStats(count=80, plain_count=60, plain_wall_ns=100 * MS)


def facts(*inputs: InputFacts, lengths: tuple[LengthFacts, ...] = (KNOWN,), num_batches: int = 160) -> Facts:
    loaders = (LoaderFacts(0, num_batches=3), LoaderFacts(1, num_batches=num_batches))
    return Facts(loaders=loaders, lengths=lengths, inputs=inputs or (GIVEN,))


def test_what_many_batches_say_of_a_step() -> None:
    found = sequences(facts(), STEP)
    assert found is not None
    assert (found.batches, found.batch_size, found.widest) == (10, 4, 128)
    assert found.real_share == pytest.approx(1300 / (40 * 128)) and found.longest_share == pytest.approx(1300 / 2800)
    assert found.tokens_per_step == 260, "two batches of 130 tokens"
    assert found.tokens_per_s == pytest.approx(2600) and found.given == GIVEN


@pytest.mark.parametrize(
    "known",
    [
        facts(lengths=()),
        facts(lengths=(msgspec.structs.replace(KNOWN, loader=0),)),
        facts(InputFacts((4, 64), "int64", 2048)),  # somebody cuts the batches before the model gets them
        facts(InputFacts((4, 3, 224, 224), "float32", 1 << 20), GIVEN),  # a few tokens beside pictures
        facts(InputFacts((4,), "int64", 32)),
        Facts(lengths=(KNOWN,), inputs=(GIVEN,)),
    ],
)
def test_what_the_model_does_not_work_on_is_not_told(known: Facts) -> None:
    assert sequences(known, STEP) is None


UNMASKED = facts(lengths=(msgspec.structs.replace(KNOWN, source="pad"),))


@pytest.mark.parametrize(
    ("known", "ops", "told"),
    [
        (UNMASKED, [op("embedding", (99, 8), (4, 128))], True),
        (UNMASKED, [op("embedding", (99, 8), (4, 127))], True),
        (UNMASKED, [op("embedding", (99, 8), (1, 128), calls=4.0)], True),
        (UNMASKED, [op("index_select", (99, 8), (), (512,))], True),
        (UNMASKED, [op("one_hot", (4, 128), ())], True),
        (UNMASKED, [op("embedding", (99, 8), (4, 3))], False),
        (UNMASKED, [op("addmm", (8,), (4, 128), (128, 8))], False),
        (UNMASKED, [], True),
        (facts(), [op("addmm", (8,), (4, 128), (128, 8))], True),
        (msgspec.structs.replace(UNMASKED, modules=(ModuleFacts(0, compiled=True),)), [op("addmm", (8,))], True),
    ],
    ids=["looked up", "all but the last", "in parts", "by index_select", "one-hot", "a few categories",
         "counts of words", "no ops", "a mask", "compiled"],
)  # fmt: skip
def test_runs_at_the_ends_of_what_is_not_looked_up_are_no_padding(known: Facts, ops: list[OpGroup], told: bool) -> None:
    """A topic model on counts of words got 12 million tokens a second."""
    assert (sequences(known, STEP, ops) is not None) == told


def test_a_decoders_inputs_may_lack_the_last_token() -> None:
    assert sequences(facts(InputFacts((4, 127), "int64", 4064)), STEP) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"cells": 100}, {"to_longest": 40 * 129}, {"rows": 39}, {"rows": 0}, {"batches": 0}, {"batches": 41},
        {"widest": 99}, {"narrowest": 129}, {"lengths": ()}, {"lengths": ((10, 0),)}, {"to_longest": 1299},
    ],
)  # fmt: skip
def test_figures_that_no_batches_have_are_none(change: dict[str, Any]) -> None:
    assert KNOWN.fits
    odd = msgspec.structs.replace(KNOWN, **change)
    assert not odd.fits and sequences(facts(lengths=(odd,)), STEP) is None


HUGE = st.integers(0, 40) | st.integers(0, 1 << 40)


@given(
    st.lists(st.tuples(st.integers(1, 40) | st.integers(1, 1 << 24), HUGE), max_size=6), HUGE, HUGE, HUGE, HUGE, HUGE,
    HUGE,
)  # fmt: skip
def test_whatever_a_file_says_of_lengths_is_judged_or_left_out(
    lengths: Any, batches: int, rows: int, cells: int, to_longest: int, narrowest: int, widest: int
) -> None:
    try:
        known = msgspec.convert(
            {
                "loader": 1, "lengths": lengths, "batches": batches, "rows": rows, "cells": cells,
                "to_longest": to_longest, "narrowest": narrowest, "widest": widest,
            },
            LengthFacts,
        )  # fmt: skip
    except msgspec.ValidationError:
        return
    whole = msgspec.structs.replace(known, batches=1, rows=max(1, sum(n for _, n in lengths)), narrowest=0)
    most = max((length for length, number in lengths if number), default=1)
    whole = msgspec.structs.replace(whole, widest=most, cells=whole.rows * most, to_longest=whole.rows * most)
    for each in (known, whole):
        found = sequences(facts(InputFacts((4, max(1, each.widest)), "int64", 4096), lengths=(each,)), STEP)
        assert (found is not None) or not each.fits
        ledger = simulated(Ledger(step=STEP, sequences=found))
        if ledger.sequences is None or ledger.sequences.ways is None:
            continue
        ways = ledger.sequences.ways
        shares = (ways.pad_to_cap, ways.pad_in_collate, ways.bucketing, ways.packing, ways.packing_bound)
        assert all(0 < share <= 1 + 1e-9 for share in shares)
        assert 0 < ledger.sequences.real_share <= ledger.sequences.longest_share <= 1


def test_the_simulation_is_that_of_the_programs_lengths() -> None:
    ledger = simulated(Ledger(step=STEP, sequences=sequences(facts(), STEP)))
    assert ledger.sequences is not None and ledger.sequences.ways is not None
    known = simulate({10: 30, 100: 10}, batch_size=4, capacity=128)
    assert ledger.sequences.ways.bucketing == known.bucketing and ledger.sequences.ways.packing == known.packing
    assert ledger.sequences.ways.pad_to_cap == pytest.approx(ledger.sequences.real_share)
    assert simulated(Ledger(step=STEP)).sequences is None


def test_very_long_rows_are_simulated_in_larger_units() -> None:
    def reached(times: int) -> Any:
        lengths = tuple((times * length, 50) for length in range(100, FINEST, 97))
        found = Sequences(9, 8, times * FINEST, 0.5, 0.9, 1.0, lengths=lengths)
        ledger = simulated(Ledger(step=STEP, sequences=found))
        assert ledger.sequences is not None
        return ledger.sequences.ways

    assert reached(8) == reached(1), "the same law"


def test_the_report_says_how_many_real_tokens_there_are_per_second() -> None:
    ledger = Ledger(step=STEP, sequences=sequences(facts(), STEP), roofline=Roofline(flops=1e9, floor_ns=5.0, mfu=0.5))
    report = build(ledger, None, [])
    assert report.tokens is not None and report.tokens.batches == 10
    assert report.tokens.useful_mfu == pytest.approx(0.5 * 1300 / 5120)
    line = "tokens    2,600 real ones per second, 25.4 % of those computed on (10 batches): useful MFU 12.7 %"
    assert line in render(report)
    again = from_json(to_json(report)).tokens
    assert again is not None and again.per_s == 2600
    assert build(Ledger(step=STEP), None, []).tokens is None
    blind = build(Ledger(step=STEP, sequences=sequences(facts(), STEP)), None, [])
    assert blind.tokens is not None and blind.tokens.useful_mfu is None
