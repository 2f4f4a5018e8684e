"""Settings of the libraries that samples come from: told where they matter, and no workers without a shard."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.recording.model.facts import SourceFacts, Span
from gobrrr.rules.data.library_calls import FETCHED_AHEAD, LEAST_ROWS
from tests.support.handmade import MS, Case
from tests.support.rule_lines import GETITEM, LOOP, line, waiting, worker

STREAM = SourceFacts("datasets stream", shares=True, shards=1)
TARS = SourceFacts("webdataset", shares=True, shards=1)
TABLE = SourceFacts("datasets", numbers=True)
FORMATS = "datasets__formatting__formatting__PythonFormatter__format_row"
NUMBERS = "torch__utils__data___utils__collate__collate_float_fn"


def reading(source: SourceFacts | None, **fields: Any) -> Case:
    """60 of 100 ms are waited for reads, one after the other; cores idle."""
    return waiting(
        60,
        line(60, LOOP, phase="data", waiting=True),
        facts={"process_load": 0.4},
        stream=True,
        source=source,
        **fields,
    )


def computing(source: SourceFacts | None, share: float = 0.5, call: str = FORMATS, **fields: Any) -> Case:
    """40 of 100 ms are spent on samples, a share of it below a call of the library."""
    spent = line(40, LOOP, phase="data", **{call: 40 * share})
    return waiting(40, spent, facts={"process_load": 2.0}, source=source, **fields)


def told(case: Case, code: str) -> str:
    (found,) = case.raised(code)
    return found.advice


def test_workers_are_no_more_than_shards() -> None:
    plenty = told(reading(SourceFacts("datasets stream", shares=True, shards=8)), "BRR405")
    wanted = next(n for n in range(2, 9) if f"num_workers={n}," in plenty)
    assert "shard" not in plenty
    (found,) = reading(STREAM).raised("BRR405")
    assert found.evidence["workers"].value == 1 and found.evidence["shards"].value == 1, "what remedies go by"
    assert f"For {wanted} workers write to_iterable_dataset(num_shards={wanted})" in found.advice


def test_one_shard_that_one_worker_reads_asks_for_shards_first() -> None:
    busy = waiting(80, num_workers=1, workers=(worker(100, cpu=0.9),), facts={"process_load": 0.2}, source=STREAM)
    (found,) = busy.raised("BRR405")
    assert "write to_iterable_dataset(num_shards=2)" in found.advice and found.saving.expected_ns > 0
    assert found.evidence["workers"].value == 1 and found.evidence["saved_by_workers"].value == 0


def test_workers_without_a_shard_are_told_and_do_not_count_as_workers() -> None:
    crowd = waiting(80, num_workers=4, workers=(worker(100, cpu=0.9),), facts={"process_load": 0.2},
                    source=SourceFacts("datasets stream", shares=True, shards=2))  # fmt: skip
    assert "With 2 shards a worker more stands idle (2 of the 4 now)" in told(crowd, "BRR401")


def test_a_worker_of_webdataset_without_a_shard_stops_the_program() -> None:
    said = told(reading(TARS), "BRR405")
    assert "tar files" in said and "stops the program" in said
    assert "tar files" not in told(reading(SourceFacts("webdataset", shards=1)), "BRR405"), "each reads all of them"


@pytest.mark.parametrize(("source", "duplicates"), [(None, True), (STREAM, False), (TARS, False), (TABLE, True)])
def test_what_shares_by_itself_needs_no_worker_info(source: SourceFacts | None, duplicates: bool) -> None:
    assert ("get_worker_info" in told(reading(source), "BRR405")) is duplicates


def test_a_table_of_numbers_is_read_as_arrays() -> None:
    assert told(computing(TABLE), "BRR401").startswith("Take rows as arrays, no lists of Python numbers: dataset.with")
    (found,) = computing(TABLE).raised("BRR401")
    assert found.evidence["rows_share"].value == pytest.approx(0.5)
    for other in (
        computing(None),
        computing(TABLE, LEAST_ROWS - 0.01),
        computing(SourceFacts("datasets", format="numpy")),
    ):
        assert "rows" not in told(other, "BRR401")


def test_decoding_is_not_the_rows() -> None:
    spent = line(40, LOOP, phase="data", **{FORMATS: 39.0, "datasets__features__image__Image__decode_example": 38.0})
    case = waiting(40, spent, facts={"process_load": 2.0}, source=TABLE)
    assert "with_format" not in told(case, "BRR401")


def test_a_wrapper_takes_the_rows_of_a_batch_at_once() -> None:
    wrapped = SourceFacts("datasets", wrapped=True, numbers=True)
    assert '__getitems__(indices) that reads dataset.with_format("numpy")[indices]' in told(
        computing(wrapped), "BRR401"
    )
    assert "__getitems__" not in told(computing(wrapped, one_by_one=False), "BRR401"), "it does"
    formatted = SourceFacts("datasets", wrapped=True, format="torch")
    assert "reads dataset[indices]" in told(computing(formatted), "BRR401")


def test_a_stream_gives_batches_of_arrays() -> None:
    assert 'dataset.with_format("numpy").batch(8) and DataLoader(..., batch_size=None)' in told(
        computing(STREAM, stream=True), "BRR401"
    )
    assert ".batch(" not in told(computing(STREAM, stream=True, batch_size=None), "BRR401")


def test_collating_numbers_is_mended_by_the_format() -> None:
    case = computing(TABLE, 0.9, NUMBERS)
    assert told(case, "BRR403") == 'Take rows as arrays, no lists of Python numbers: dataset.with_format("numpy").'
    own = computing(TABLE, 0.9, NUMBERS, collate_span=Span("data.py", 30, "collate"))
    assert "Fill one tensor" in told(own, "BRR403"), "and its own collate is still to be written"
    assert "with_format" not in told(computing(SourceFacts("datasets"), 0.0, NUMBERS), "BRR401")


def test_samples_from_workers_of_webdataset_are_batched_inside() -> None:
    def said(source: SourceFacts, **fields: Any) -> str:
        busy = waiting(80, num_workers=1, workers=(worker(100, GETITEM, cpu=0.9),), source=source, **fields)
        return told(busy, "BRR401")

    eight = SourceFacts("webdataset", shares=True, shards=8)
    assert ".batched(n)" in said(eight, batch_size=None)
    assert ".batched(n)" not in said(eight)
    assert ".batched(n)" not in said(SourceFacts("webdataset", shares=True, shards=8, batched=True), batch_size=None)


def test_streaming_fetches_eight_batches_ahead() -> None:
    def said(**fields: Any) -> str:
        return told(reading(SourceFacts("streaming", shares=True, remote=True, **fields)), "BRR405")

    assert f"StreamingDataset(predownload={FETCHED_AHEAD * 8}): it fetches 16 samples" in said(
        predownload=16, batch_size=8
    )
    assert "StreamingDataset(batch_size=8, predownload=64)" in said(predownload=8, batch_size=1)
    assert "StreamingDataset" not in said(predownload=FETCHED_AHEAD * 8, batch_size=8)
    assert "cache_limit" in said(evicts=True) and "cache_limit" not in said()


def test_a_stream_is_not_kept_by_index() -> None:
    """It has no index, and computed_once refuses it."""
    given = {"num_looked": 20, "length": 799, "iter_ns": (1000, 1000)}
    assert "[dataset[i] for i in" in told(computing(TABLE, **given), "BRR401")
    (found,) = computing(STREAM, stream=True, **given).raised("BRR401")
    assert "[dataset[i] for i in" not in found.advice and "computed_once" not in found.remedies
    assert found.saving.expected_ns < 40 * MS
