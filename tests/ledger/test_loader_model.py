"""How long a step is with so many workers: figures by hand, and what holds of any pipeline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.ledger.loading import loader_model
from gobrrr.ledger.loading.loader_model import ALIKE, HANDOVER_NS, Cores, Pipeline, best, late, predicted, step

MS = 1e6
H = HANDOVER_NS / MS
TWO = Cores(2.0, 1.8, 2.0)


def ms(pipeline: Pipeline, workers: int, cores: float = 2.0) -> float:
    return step(pipeline, workers, cores) / MS


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(0, 10 + 48), (1, 48 + H), (2, (48 + H) / 2), (4, (48 + H) / 4), (8, 10 + H)],
)
def test_a_worker_blocks_and_computes_in_turn(workers: int, expected: float) -> None:
    """32 ms blocked and 16 computed per batch, beside a step of 10 that leaves the cores alone."""
    assert ms(Pipeline(10 * MS, 32 * MS, 16 * MS), workers) == pytest.approx(expected)


def test_every_batch_of_a_step_is_handed_over() -> None:
    assert ms(Pipeline(40 * MS, 32 * MS, 16 * MS, batches=2), 8) == pytest.approx(40 + 2 * H)


def test_no_time_advises_no_workers() -> None:
    assert best(Pipeline(float("nan"), 1.0, 1.0), 2.0, 8) == 0


def test_what_is_computed_shares_the_cores_with_the_step() -> None:
    """40 ms of work a batch, and a step that keeps one core busy for 20: 60 + H on two cores, however many workers."""
    busy = Pipeline(20 * MS, 0.0, 40 * MS, busy=1.0)
    assert ms(busy, 1) == pytest.approx(40 + H)
    assert ms(busy, 2) == ms(busy, 8) == pytest.approx((60 + H) / 2)
    assert ms(busy, 8, cores=1.2) == pytest.approx((60 + H) / 1.2)


def test_workers_beside_threads_on_every_core_keep_the_step_waiting() -> None:
    """The small ViT of decision 0014: 20 ms on four cores and 25 ms of pictures. 45 without workers, as much with one
    beside four threads, and with one beside three no more than the slower of the two takes (measured: 45, 51, 25)."""
    vit = Pipeline(20 * MS, 0.0, 25 * MS, busy=4.0, threads=4)
    assert ms(vit, 0, 4.0) == pytest.approx(45)
    assert ms(vit, 1, 4.0) == pytest.approx(45 + H)
    three = vit.with_threads(3)
    assert three.compute_ns == pytest.approx(20 * MS * 4 / 3) and three.busy == pytest.approx(3.0)
    assert ms(three, 1, 4.0) == pytest.approx(20 * 4 / 3 + H)
    assert best(vit, 4.0, 8) == 0 and best(three, 4.0, 8) == 1


def test_half_a_step_of_ops_on_all_threads_waits_half_as_much() -> None:
    """1.5 cores busy of two threads: half of the time both are."""
    half = Pipeline(20 * MS, 0.0, 8 * MS, busy=1.5, threads=2)
    assert half.parallel == 0.5
    assert ms(half, 1) == pytest.approx(20 + H + 4)


def test_fewest_workers_of_those_that_are_alike() -> None:
    blocked = Pipeline(30 * MS, 90 * MS, 0.0)
    assert best(blocked, 2.0, 8) == 3
    assert best(Pipeline(30 * MS, 0.0, 0.0), 2.0, 8) == 0, "nothing to hide"
    assert best(Pipeline(2 * MS, 0.0, 1 * MS), 2.0, 8) == 0, "a hand-over costs more than the batch"
    assert best(blocked._replace(blocked_ns=10 * MS), 2.0, 8) == 1


def test_the_interval_is_of_the_recording_the_cores_and_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Pipeline(0.0, 0.0, 36 * MS, spread=0.1)
    assert predicted(work, 0, TWO) == pytest.approx((36 * MS, 0.9 * 36 * MS, 1.1 * 36 * MS))
    monkeypatch.setattr(loader_model, "WITHIN", 0.2)
    found, bound = predicted(work, 4, TWO), 36 * MS + HANDOVER_NS
    assert found.expected == pytest.approx(bound / 2)
    assert found.low == pytest.approx(bound / 2 * 0.9 * 0.8) and found.high == pytest.approx(bound / 1.8 * 1.1 * 1.2)
    hidden = predicted(Pipeline(40 * MS, 20 * MS, 0.0), 1, TWO)
    assert hidden == pytest.approx((40 * MS + HANDOVER_NS, 40 * MS, 40 * MS + 2 * HANDOVER_NS)), "C itself is known"


def test_the_step_keeps_the_cores_that_it_had() -> None:
    """On a crowded machine 0.7 cores are thought to be left, and the step had 1.5: reading hides all the same."""
    crowded = Pipeline(100 * MS, 60 * MS, 0.0, busy=1.5, threads=2)
    assert ms(crowded, 1, cores=0.7) == pytest.approx(100 + H) and best(crowded, 0.7, 4) == 1


def test_a_slow_batch_is_hidden_by_what_is_ready_before_it() -> None:
    """Two workers hold four batches: three steps of 10 ms pass before the slow one is wanted."""
    assert late(50 * MS, 0, 10 * MS) == 50 * MS
    assert late(50 * MS, 2, 10 * MS) == 20 * MS
    assert late(50 * MS, 4, 10 * MS) == 0


ns = st.floats(0, 1e9)
pipelines = st.builds(
    Pipeline, ns, ns, ns, busy=st.floats(0, 8), threads=st.integers(1, 8), batches=st.floats(1, 4),
    spread=st.floats(0, 0.5),
)  # fmt: skip
some_cores = st.floats(0.5, 64)


@given(pipelines, st.integers(1, 32), some_cores)
def test_never_below_the_step_alone_and_never_below_its_work(pipeline: Pipeline, workers: int, cores: float) -> None:
    found = step(pipeline, workers, cores)
    assert found >= pipeline.compute_ns and found * max(cores, pipeline.busy) * (1 + 1e-9) >= pipeline.cpu_ns
    assert step(pipeline, 0, cores) == pipeline.compute_ns + pipeline.blocked_ns + pipeline.cpu_ns


@given(pipelines, st.integers(1, 31), some_cores)
def test_more_cores_never_cost_and_more_workers_only_where_ops_have_every_core(
    pipeline: Pipeline, workers: int, cores: float
) -> None:
    found = step(pipeline, workers, cores)
    assert step(pipeline, workers, 2 * cores) <= found * (1 + 1e-9)
    alone = pipeline._replace(threads=1)
    assert step(alone, workers + 1, cores) <= step(alone, workers, cores) * (1 + 1e-9)


@given(pipelines, some_cores)
def test_the_best_is_nearly_the_least_and_the_interval_holds_the_figure(pipeline: Pipeline, cores: float) -> None:
    found = best(pipeline, cores, 16)
    assert step(pipeline, found, cores) <= (1 + ALIKE) * min(step(pipeline, w, cores) for w in range(17)) * (1 + 1e-9)
    said = predicted(pipeline, found, Cores(cores, 0.9 * cores, 1.1 * cores))
    assert said.low <= said.expected * (1 + 1e-9) and said.expected <= said.high * (1 + 1e-9)


@given(pipelines, st.integers(1, 8))
def test_fewer_threads_never_shorten_the_step_and_never_change_its_work(pipeline: Pipeline, threads: int) -> None:
    found = pipeline.with_threads(threads)
    assert found.compute_ns >= pipeline.compute_ns * (1 - 1e-9)
    assert found.compute_ns * found.busy == pytest.approx(pipeline.compute_ns * pipeline.busy)
