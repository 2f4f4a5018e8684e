"""BRR410 and BRR411: what the main process does itself in a wait for its loader, of ledgers made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.host.stacks import RECEIVING, SAMPLING, SENDING
from gobrrr.ledger.loading.loader_model import HANDOVER_NS
from gobrrr.ledger.model.ledger import LineGroup, WorkerGroup
from gobrrr.recording.model.facts import Span
from tests.support.handmade import ALL_SIGNALS, MS, Case
from tests.support.rule_lines import COLLATE, GETITEM, LOOP, line, waiting, worker

CODES = tuple(f"BRR{number}" for number in (401, 402, 403, 405, 407, 408, 410, 411))
SAMPLER = Span("data.py", 50, "Balanced.__iter__")
REBUILD = "torch__multiprocessing__reductions__rebuild_storage_fd"
FOLLOWS = worker(5.0)
"""A worker that has its batch in no time."""


def stage(name: str, ms: float, *where: Span, cpu: float | None = 1.0, **below: float) -> LineGroup:
    return replace(line(ms, *(where or (LOOP,)), phase="data", **below), stage=name, cpu_share=cpu)


def raised(case: Case) -> list[str]:
    return [code for code in CODES if case.raised(code)]


def sampling(ms: float = 30.0, rest: float = 10.0, **fields: Any) -> Case:
    """A wait of both; the rest is for the workers."""
    given: dict[str, Any] = {"workers": (FOLLOWS,), "num_workers": 2, "facts": {"process_load": 0.6}} | fields
    return waiting(ms + rest, stage(SAMPLING, ms, SAMPLER, LOOP), line(rest, LOOP, phase="data"), **given)


def receiving(ms: float = 30.0, rest: float = 10.0, below: dict[str, float] | None = None, **fields: Any) -> Case:
    given: dict[str, Any] = {"workers": (FOLLOWS,), "num_workers": 2, "facts": {"process_load": 0.6}} | fields
    parts = stage(RECEIVING, ms, LOOP, **(below or {})), line(rest, LOOP, phase="data")
    return waiting(ms + rest, *parts, **given)


def test_a_sampler_is_named_at_its_line_and_nothing_else_is():
    case = sampling()
    (found,) = case.raised("BRR410")
    assert raised(case) == ["BRR410"], "one wait, one cause"
    assert found.where == (SAMPLER, LOOP) and "2 workers wait" in found.message
    assert found.saving.expected_ns == pytest.approx(30 * MS, rel=0.01)
    assert found.saving.low_ns == pytest.approx(found.saving.expected_ns / 2)
    assert found.saving.low_ns <= found.saving.expected_ns <= found.saving.ceiling_ns
    assert found.evidence["sampling"].value == found.evidence["sampling_cpu"].value == 30 * MS


def test_a_sampler_of_less_than_half_of_the_wait_does_not_name_it():
    assert raised(sampling(20.1, 19.9)) == ["BRR410"]
    assert "BRR410" not in raised(sampling(19.9, 20.1))


def test_a_short_wait_is_not_told():
    assert raised(sampling(5.1, 0.0)) == ["BRR410"]
    assert raised(sampling(4.9, 0.0)) == []


def test_without_workers_the_sampler_is_told_apart_from_fetching():
    fetch = line(10, GETITEM, LOOP, phase="data")
    case = waiting(40, stage(SAMPLING, 30, SAMPLER, LOOP), fetch, facts={"process_load": 1.0})
    assert raised(case) == ["BRR410"] and "workers" not in case.raised("BRR410")[0].message
    less = waiting(40, stage(SAMPLING, 15, SAMPLER, LOOP), replace(fetch, ns=25 * MS), facts={"process_load": 1.0})
    (found,) = less.raised("BRR401")
    assert "BRR410" not in raised(less) and found.where == (GETITEM, LOOP)


def test_the_sampler_s_line_is_never_shown_as_the_sample_s():
    case = waiting(40, stage(SAMPLING, 15, SAMPLER, LOOP), *(line(12.5, GETITEM, Span("train.py", n), phase="data")
                   for n in (71, 72)), facts={"process_load": 1.0})  # fmt: skip
    assert case.raised("BRR401")[0].where[0] == GETITEM


def test_workers_that_are_as_slow_leave_nothing_to_gain():
    """Two workers take 200 ms for a batch: one comes every 100 ms, as today."""
    assert raised(sampling(workers=(worker(200.0, cpu=0.0),))) == []
    case = sampling(workers=(worker(160.0, cpu=0.0),))
    assert case.raised("BRR410")[0].saving.expected_ns == pytest.approx((100 - 80 - HANDOVER_NS / MS / 2) * MS)


def test_what_an_epoch_begins_with_counts_as_far_as_epochs_begin():
    """Lengths sorted in the first request of an epoch: the median step waits for nothing."""
    started = {"first_wait_ns": (200 * MS,) * 5, "iter_ns": (0,) * 5, "num_batches": 50}
    parts = stage(SAMPLING, 15, SAMPLER, LOOP), line(1, LOOP, phase="data")
    case = waiting(1, *parts, workers=(FOLLOWS,), num_workers=2, waits=(1.0,) * 20, facts={"process_load": 0.8},
                   **started)  # fmt: skip
    (found,) = case.raised("BRR410")
    assert "mean step" in found.message and raised(case) == ["BRR410"]
    assert found.saving.expected_ns == pytest.approx((15 - HANDOVER_NS / MS) * MS, rel=0.01)
    rarely = waiting(1, *parts, workers=(FOLLOWS,), num_workers=2, waits=(1.0,) * 20,
                     **started | {"num_batches": 500})  # fmt: skip
    assert raised(rarely) == [], "0.2 of 15 ms: one of few epochs was in the sampled steps"


def test_many_tensors_are_named_where_the_batch_is_made():
    case = receiving(below={REBUILD: 29.0}, collate_span=COLLATE)
    (found,) = case.raised("BRR411")
    assert raised(case) == ["BRR411"]
    assert found.where == (COLLATE,) and "one by one" in found.message and "torch.cat" in found.advice
    assert found.saving.expected_ns == pytest.approx((40 - HANDOVER_NS / MS) * MS, rel=0.01)
    assert found.saving.low_ns <= found.saving.expected_ns <= found.saving.ceiling_ns


def test_the_collate_function_s_own_line_is_shown_where_it_was_sampled():
    at = Span("data.py", 33, "collate")
    case = receiving(collate_span=COLLATE, workers=(FOLLOWS, worker(1.0, at, kind="collate")))
    assert case.raised("BRR411")[0].where == (at,)
    assert receiving().raised("BRR411")[0].where == (Span("data.py", 10, "__getitem__"),), "torch's own collates"
    assert receiving(dataset_span=None).raised("BRR411")[0].where == (LOOP,)


def test_what_comes_through_a_pipe_is_told_so():
    (found,) = receiving(below={"multiprocessing__connection__Connection___recv": 20.0}).raised("BRR411")
    assert "pipe" in found.message and "torch.from_numpy" in found.advice


def test_the_usual_hand_over_is_no_illness():
    """Twice 1.5 ms, and half of the wait."""
    assert raised(receiving(3.1, 2.0, step=40)) == ["BRR411"]
    assert "BRR411" not in raised(receiving(2.9, 2.2, step=40))
    assert "BRR411" not in raised(receiving(19.9, 20.1))


def sends(ms: float, made: float = 5.0, wait: float = 40.0, cpu: float = 1.0) -> Case:
    groups = (worker(made, cpu=cpu), WorkerGroup(0, SENDING, (), ms * MS, cpu_share=1.0))
    return receiving(1.0, wait - 1, workers=groups, num_workers=1)


def test_workers_that_copy_longer_than_they_make_a_batch():
    (found,) = sends(30).raised("BRR411")
    assert raised(sends(30)) == ["BRR411"] and "copying batches to shared memory" in found.message
    assert found.evidence["sending_cpu"].value == 30 * MS and "uint8" in found.advice
    assert raised(sends(5.1)) == ["BRR411"] and "BRR411" not in raised(sends(4.9)), "5 % of the step"
    assert "BRR411" not in raised(sends(30, made=31)), "making it takes longer"
    assert "BRR411" not in raised(sends(30, made=61, cpu=0.0)), "reading takes longer"
    assert raised(sends(30, made=30, cpu=0.0)) == ["BRR411"], "it may have waited for the thread that sends"


@pytest.mark.parametrize("make", [sampling, receiving])
def test_nulls_are_survived(make):
    unknown = dict(collate_span=None, dataset_span=None, created_span=None, batch_size=None, prefetch_factor=None)
    case = make(workers=(), facts={}, **unknown)
    case.extra["lines"] = tuple(replace(each, cpu_share=None) for each in case.extra["lines"])
    assert len(raised(case)) == 1
    assert not any("_cpu" in name for name in case.raised(raised(case)[0])[0].evidence)


@pytest.mark.parametrize("make", [sampling, receiving])
def test_without_samples_and_in_a_trace_they_are_silent(make):
    case = make()
    case.signals = ALL_SIGNALS | {"offline"}
    assert not {"BRR410", "BRR411"} & set(raised(case))
    case = make()
    case.extra["lines"] = ()
    assert not {"BRR410", "BRR411"} & set(raised(case))


def test_on_crowded_cores_the_usual_hand_over_is_told_by_its_cpu_time():
    """The worker that is asked for its tensors waits for a core: 10 ms of which the main thread works 2.9 are none."""
    crowd = {"process_load": 1.0, "other_load": 1.5}
    for cpu, told in ((0.29, []), (0.31, ["BRR411"])):
        case = receiving(10.0, 5.0, facts=crowd)
        case.extra["lines"] = tuple(replace(each, cpu_share=cpu) for each in case.extra["lines"])
        assert raised(case) == told


@pytest.mark.parametrize(("make", "code"), [(sampling, "BRR410"), (receiving, "BRR411")])
def test_beside_strangers_the_main_thread_s_own_part_stays(make, code):
    """With the cores in other hands a wait is cut down to the workers' own; what the main thread does is its own."""
    case = make(facts={"process_load": 1.0, "other_load": 1.5})
    assert raised(case) == [code]


def test_more_workers_are_not_promised_what_the_hand_over_takes():
    """Ten of the 60 ms that are waited go into taking batches over: the model's 1.5 ms would be too few."""
    parts = stage(RECEIVING, 10, LOOP), line(50, LOOP, phase="data")
    given: dict[str, Any] = {"workers": (worker(100.0, cpu=0.0),), "num_workers": 1, "facts": {"process_load": 0.4}}
    (dear,), (usual,) = (waiting(60, *some, **given).raised("BRR402") for some in (parts, parts[1:]))
    assert dear.saving.expected_ns == pytest.approx((100 - 40 - 10) * MS, rel=0.01)
    assert usual.saving.expected_ns > 58 * MS
