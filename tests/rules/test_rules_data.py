"""BRR401 to BRR409: waits of ledgers made by hand. One wait has one cause."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.loading import loader_model
from gobrrr.ledger.model.ledger import Account, Sequences, StepStats, Ways
from gobrrr.recording.model.facts import Facts, InputFacts, LoaderFacts, OptimizerFacts, Span
from gobrrr.rules.data.wait_stages import period
from tests.support.handmade import ALL_SIGNALS, LINE, MS, Case, machine, measured, op
from tests.support.rule_lines import COLLATE, GETITEM, LOOP, host, line, loader, waiting, worker

HANDOVER, WITHIN = loader_model.HANDOVER_NS / MS, loader_model.WITHIN

WAIT_CODES = ("BRR401", "BRR402", "BRR403", "BRR408")
DECODE = line(30, GETITEM, LOOP, phase="data")
STACK = line(3, LOOP, phase="data", torch__utils__data___utils__collate__default_collate=3.0)


def raised(case: Case) -> list[str]:
    return [code for code in (*WAIT_CODES, "BRR404", "BRR405", "BRR406", "BRR407") if case.raised(code)]


def transform(ms: float = 40.0, **fields: Any) -> Case:
    return waiting(ms, DECODE, STACK, facts={"process_load": 2.0}, **fields)


def test_samples_that_are_computed_are_told_at_the_executing_line():
    case = transform()
    (found,) = case.raised("BRR401")
    assert found.where == (GETITEM, LOOP) and found.severity == "critical"
    assert found.saving.expected_ns == pytest.approx(28 * MS) and found.saving.ceiling_ns == 40 * MS
    assert raised(case) == ["BRR401"], "one wait, one cause"


def test_the_ceiling_of_a_wait_is_its_account_and_what_the_run_cannot_resolve():
    case = transform()
    case.step = replace(case.step, low_ns=96 * MS, high_ns=104 * MS)
    assert case.raised("BRR401")[0].saving.ceiling_ns == 44 * MS


def test_a_busy_worker_takes_a_core_from_the_step_and_the_ceiling_knows_it():
    """60 of 100 ms wait for one worker that computes all the time: of two cores one is left for two threads."""
    case = waiting(60, workers=(worker(100.0),), num_workers=1, facts={"process_load": 0.8})
    assert case.raised("BRR401")[0].saving.ceiling_ns == 60 * MS, "a device runs the rest"
    case.signals = ALL_SIGNALS - {"device"}
    assert case.raised("BRR401")[0].saving.ceiling_ns == pytest.approx((60 + 0.5 * 40) * MS)
    case.machine = replace(case.machine, logical_cores=4, effective_cores=measured(4, "1"))
    assert case.raised("BRR401")[0].saving.ceiling_ns == pytest.approx((60 + 0.25 * 40) * MS), "cold caches alone"


def test_what_a_short_wait_takes_from_the_rest_is_short_too():
    case = waiting(8, DECODE, facts={"process_load": 2.0})
    case.signals = ALL_SIGNALS - {"device"}
    assert case.raised("BRR401")[0].saving.ceiling_ns == pytest.approx(1.25 * 8 * MS)


def test_without_sampled_lines_the_dataset_is_shown():
    case = waiting(40, facts={"process_load": 2.0})
    assert case.raised("BRR401")[0].where == (Span("data.py", 10, "__getitem__"),)
    case = waiting(40, dataset_span=None, facts={"process_load": 2.0})
    assert case.raised("BRR401")[0].where == (LOOP,)


@pytest.mark.parametrize("case", [transform(4.9), Case(accounts=(Account("data_wait", 40 * MS, 0.4),)), Case()])
def test_small_waits_and_programs_without_a_loader_are_silent(case):
    assert raised(case) == []


def reading(ms: float = 60.0, load: float = 0.5, **fields: Any) -> Case:
    return waiting(
        ms, line(ms - 10, GETITEM, LOOP, phase="data", waiting=True), STACK, facts={"process_load": load}, **fields
    )


def test_reading_without_workers_asks_for_workers():
    (found,) = reading().raised("BRR405")
    assert found.where == (LOOP,) and raised(reading()) == ["BRR405"]
    # Two workers load a batch in 31 ms, which the 40 ms of the step hide: all of it goes but the handing over, and what
    # the 3.4 ms of CPU time take from ops that have both cores for a sixth of the step (46.6 ms of CPU time in 40).
    computed, busy = 60 * 3 / 53, (50 - 60 * 3 / 53) / 40
    gain = 60 - HANDOVER - (busy - 1) * computed
    assert found.saving.expected_ns == pytest.approx(gain * MS)
    assert found.saving.low_ns == pytest.approx((60 - 2 * (60 - gain)) * MS)
    assert "num_workers=2" in found.advice
    assert found.evidence["off_cpu_share"].value == pytest.approx(50 / 53, abs=1e-3)


def test_workers_are_as_many_as_the_cores_that_others_left():
    def computed(others: float) -> Case:
        case = waiting(90, line(85, GETITEM, LOOP, phase="data"), STACK,
                       facts={"process_load": 0.9, "other_load": others})  # fmt: skip
        case.machine = replace(machine(), effective_cores=measured(4, "1"), logical_cores=4)
        return case

    (alone,) = computed(0.0).raised("BRR405")
    assert "num_workers=4" in alone.advice and "while 4.0 cores stand idle" in alone.message
    (beside,) = computed(2.0).raised("BRR405")
    assert "num_workers=2" in beside.advice and "while 2.0 cores stand idle" in beside.message
    assert not computed(3.2).raised("BRR405"), "what is left of the cores the program has already"


def test_reading_that_four_workers_cannot_hide_is_not_promised():
    """95 ms of loading, four workers: a batch each 24 ms, where the step itself takes 5."""
    assert reading(95).raised("BRR405")[0].saving.expected_ns == pytest.approx((100 - (95 + HANDOVER) / 4) * MS)


def test_reading_workers_are_told_at_the_line_that_reads():
    case = waiting(60, num_workers=2, workers=(worker(190, cpu=0.05),), facts={"process_load": 0.4})
    (found,) = case.raised("BRR402")
    assert found.where == (GETITEM,) and raised(case) == ["BRR402"]
    # Twice the workers halve the 100 ms that a batch takes to come; the step itself needs 40.
    assert found.saving.expected_ns == pytest.approx(50 * MS)
    assert found.evidence["workers"].value == 4 and found.evidence["headspace"].value == 60 * MS


def test_workers_that_idle_are_reading_and_the_main_threads_waiting_is_no_evidence():
    queue = line(40, LOOP, phase="data", waiting=True)
    idle = waiting(40, queue, num_workers=1, workers=(worker(100, cpu=0.1),), facts={"process_load": 0.9})
    assert raised(idle) == ["BRR402"] and idle.raised("BRR402")[0].where == (GETITEM,)
    busy = waiting(40, queue, num_workers=1, workers=(worker(100, cpu=0.95),), facts={"process_load": 1.1})
    assert raised(busy) == ["BRR401"]


def test_workers_without_a_core_are_not_reading():
    queue = line(40, LOOP, phase="data", waiting=True)
    crowded = waiting(40, queue, num_workers=2, workers=(worker(100, cpu=0.4),), facts={"process_load": 1.9})
    assert raised(crowded) == ["BRR401"]


def test_where_strangers_have_the_cores_being_off_the_processor_is_no_evidence():
    slept = line(50, GETITEM, LOOP, phase="data", waiting=True)
    assert raised(waiting(60, slept, facts={"process_load": 0.5, "other_load": 1.2}))[0] == "BRR401"
    assert raised(waiting(60, slept, facts={"process_load": 0.5, "other_load": 0.2})) == ["BRR405"]
    everything = waiting(60, slept, line(30, LOOP, waiting=True), facts={"process_load": 0.5, "other_load": 1.2})
    assert raised(everything)[0] == "BRR401"
    awake = waiting(60, slept, line(30, LOOP), facts={"process_load": 0.5, "other_load": 1.2})
    assert raised(awake) == ["BRR405"], "the rest of the thread runs: this part of it really waits"
    workers = (worker(60, cpu=0.15),)
    assert "BRR402" in raised(waiting(60, num_workers=1, workers=workers, facts={"process_load": 0.5}))
    crowd = waiting(60, num_workers=1, workers=workers, facts={"process_load": 0.5, "other_load": 1.2})
    assert "BRR402" not in raised(crowd)
    crowd.extra["workers"] = (worker(60, cpu=0.02),)
    assert "BRR402" in raised(crowd)


def test_workers_and_step_that_share_what_strangers_leave_wait_for_each_other():
    crowd = {"process_load": 0.3, "other_load": 1.9}
    light = waiting(40, num_workers=1, workers=(worker(60, cpu=0.3),), facts=crowd)
    assert raised(light) == [], "18 ms of work per batch hide behind the step's 30"
    heavy = waiting(60, num_workers=1, workers=(worker(160, cpu=0.5),), facts=crowd)
    # 80 ms of CPU time per batch and 30 of the step: 24 and 30 are left where samples take 0.3 of it.
    cheap = heavy.raised("BRR401")[0].saving
    assert 50 * MS > cheap.expected_ns > 0.7 * 50 * MS, "what the step hides goes whole"
    assert raised(waiting(40, num_workers=1, workers=(worker(60, cpu=0.3),), facts={"process_load": 0.3})) == ["BRR402"]


def test_unseen_workers_on_a_crowded_machine_are_blamed_for_half_a_step_and_more():
    crowd = {"process_load": 0.3, "other_load": 1.2}
    assert raised(waiting(40, num_workers=1, facts=crowd)) == []
    assert "BRR401" in raised(waiting(60, num_workers=1, facts=crowd))
    assert "BRR401" in raised(waiting(40, num_workers=1, facts={"process_load": 0.3}))


def test_idle_workers_do_not_dilute_what_they_do():
    parts = (worker(60, COLLATE, kind="collate"), worker(20), worker(500, LOOP, kind="other", cpu=0.0))
    case = waiting(40, num_workers=2, workers=parts, facts={"process_load": 1.9})
    assert raised(case) == ["BRR403"] and case.raised("BRR403")[0].where == (COLLATE,)


def test_collating_by_hand_is_told_at_the_users_line():
    case = waiting(
        40, line(28, COLLATE, LOOP, phase="data"), line(12, GETITEM, phase="data"),
        collate="collate", collate_span=Span("data.py", 28, "collate"), facts={"process_load": 2.0},
    )  # fmt: skip
    (found,) = case.raised("BRR403")
    assert found.where == (COLLATE, LOOP) and raised(case) == ["BRR403"]
    assert found.saving.expected_ns == pytest.approx(0.8 * 28 * MS)
    assert found.saving.low_ns == pytest.approx(0.3 * 28 * MS)
    assert found.lies == (("data_wait", 40 * MS),)


def test_what_collating_must_take_is_measured_where_the_batch_was_seen():
    """40 ms, all of it collating; 16 samples are 16 dispatches of 1 us, and 8 MB read and written 0.8 ms at 20 GB/s."""
    facts = {
        "process_load": 2.0,
        "inputs": (InputFacts((16, 8), "float32", 6_000_000), InputFacts((16,), "", 2_000_000)),
    }
    whole = line(40, COLLATE, LOOP, phase="data")
    span = Span("data.py", 28, "collate")
    (found,) = waiting(40, whole, collate="collate", collate_span=span, facts=facts, batch_size=16).raised("BRR403")
    assert found.saving.expected_ns == pytest.approx((40 - 0.016 - 0.8) * MS)
    assert found.evidence["expected_by"].value == "what copying each sample once takes here"
    (unseen,) = waiting(40, whole, collate="collate", collate_span=span, facts={"process_load": 2.0}).raised("BRR403")
    assert (
        unseen.saving.expected_ns == pytest.approx(0.8 * 40 * MS) and "a guess" in unseen.evidence["expected_by"].value
    )
    (computed,) = transform().raised("BRR401")
    assert "a guess" in computed.evidence["expected_by"].value
    (slow,) = slow_ones(200.0, 202.0).raised("BRR407")
    assert slow.evidence["expected_by"].value == "the usual wait of the plain phase"
    huge = {**facts, "inputs": (InputFacts((16, 8), "float32", 1 << 30),)}
    case = waiting(40, whole, collate="collate", collate_span=span, facts=huge, batch_size=16)
    assert not case.raised("BRR403"), "copying it once takes longer"


def test_tensors_in_memory_taken_apart_are_told_where_the_dataset_or_the_loader_is():
    fetch = line(30, LOOP, phase="data", torch__utils__data__dataset__TensorDataset____getitem__=20.0)
    fields = {"in_memory": True, "batch_size": 1024, "dataset_span": None, "facts": {"process_load": 2.0}}
    case = waiting(40, fetch, **fields)
    (found,) = case.raised("BRR408")
    assert found.where == (LOOP,) and raised(case) == ["BRR408"]
    assert found.evidence["per_sample"].value == pytest.approx(40 * MS / 1024, abs=1)
    assert found.saving.expected_ns == pytest.approx(0.9 * 40 * MS) and found.saving.low_ns == pytest.approx(20 * MS)
    assert found.evidence["headspace"].value == pytest.approx(40 * MS)


def test_rows_at_once_bring_what_the_loop_waits_for_and_no_more():
    """One worker takes 90 ms where the step takes 60 without waiting, two 45: whatever fetching saves there, the wait
    is over."""
    fields = {"in_memory": True, "batch_size": 65536, "dataset_span": None, "facts": {"process_load": 0.7}}
    case = waiting(30, num_workers=1, workers=(worker(90),), step=90.0, **fields)
    (found,) = case.raised("BRR408")
    assert found.saving.expected_ns == pytest.approx(30 * MS, rel=0.1) and found.saving.low_ns <= 30 * MS


def test_a_transform_of_data_in_memory_is_a_transform():
    case = waiting(40, DECODE, in_memory=True, batch_size=64, facts={"process_load": 2.0})
    assert raised(case) == ["BRR401"], "0.6 ms per sample is no indexing"
    assert raised(waiting(40, DECODE, in_memory=True, batch_size=None, facts={"process_load": 2.0})) == ["BRR401"]


def test_a_batch_of_indices_is_not_fetched_item_by_item():
    fields = {"in_memory": True, "batch_size": 1024, "one_by_one": False, "facts": {"process_load": 2.0}}
    assert raised(waiting(40, **fields)) == ["BRR401"]


def test_every_micro_step_takes_a_batch():
    case = waiting(40, in_memory=True, batch_size=256, num_batches=400, facts={"process_load": 2.0})
    assert case.raised("BRR408")[0].evidence["per_sample"].value == pytest.approx(40 * MS / 1024, abs=1)
    facts = {"optimizers": (OptimizerFacts(0, micro_steps=4.0),), "process_load": 2.0}
    again = waiting(40, in_memory=True, batch_size=256, facts=facts)
    assert raised(again) == ["BRR401"], "four passes over one batch are no four batches"
    again = waiting(40, in_memory=True, batch_size=256, num_batches=0, facts=facts)
    assert raised(again) == ["BRR408"], "where nobody counted, a micro-step takes a batch"


def idle_cores(load: float, **fields: Any) -> Case:
    return waiting(40, DECODE, facts={"process_load": load}, **fields)


def test_workers_are_offered_where_cores_idle_during_the_step():
    (found,) = idle_cores(0.6).raised("BRR405")  # 20 ms of work in the 60 ms beside the wait
    assert found.saving.expected_ns == pytest.approx((40 - HANDOVER) * MS) and found.saving.low_ns > 0
    assert found.where == (LOOP,) and "num_workers=1" in found.advice
    expected = idle_cores(0.6).raised("BRR401")[0].saving.expected_ns
    assert found.saving.expected_ns > expected, "idle cores make workers the first thing to try"


def test_what_handing_a_batch_over_costs_is_not_promised(monkeypatch):
    """A step of 3.8 ms that waits for 0.9 of them: 2.5 ms by hand, 4.5 with two workers."""
    (found,) = idle_cores(0.6).raised("BRR405")
    assert found.saving.low_ns == pytest.approx((40 - 2 * HANDOVER) * MS)
    monkeypatch.setattr(loader_model, "HANDOVER_NS", 38 * MS)
    assert not idle_cores(0.6).raised("BRR405"), "2 ms are left of it"
    one = waiting(80, num_workers=1, workers=(worker(100, cpu=0.9),), facts={"process_load": 0.2})
    assert one.raised("BRR405"), "it has paid already"


def test_workers_gain_nothing_where_the_step_has_all_cores():
    assert not idle_cores(1.6).raised("BRR405")  # 120 ms of work in 60 ms
    case = idle_cores(0.6)
    case.machine = replace(machine(), effective_cores=measured(1.0, "1"))
    assert case.raised("BRR405")[0].saving.ceiling_ns <= 40 * MS
    single = idle_cores(1.0)
    single.machine = case.machine
    assert not single.raised("BRR405")


def test_half_a_core_is_no_promise():
    (found,) = idle_cores(1.35).raised("BRR405")  # 95 ms of work in 60 ms: 0.4 cores are left
    # Ops on both cores for 35 of 60 ms: for so much of the worker's 40 ms one of their threads has no core.
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx((40 - HANDOVER - 40 * 35 / 60) * MS)


def test_a_worker_more_is_offered_where_a_core_is_left_for_it():
    one = waiting(80, num_workers=1, workers=(worker(100, cpu=0.9),), facts={"process_load": 0.2})
    (found,) = one.raised("BRR405")
    assert raised(one) == ["BRR401", "BRR405"] and "num_workers=2" in found.advice
    # 90 ms of CPU time a batch and 20 of the step on two cores; one worker takes 100, of which the model has 101.5.
    assert found.saving.expected_ns == pytest.approx((100 - (90 + 20 + HANDOVER) / 2 * 100 / (100 + HANDOVER)) * MS)
    assert found.saving.expected_ns < one.raised("BRR401")[0].saving.expected_ns


def test_unknown_load_is_taken_for_a_full_machine():
    assert not waiting(40, DECODE).raised("BRR405")


def crowd(workers: int = 12, load: float = 1.9, **fields: Any) -> Case:
    slowed = (Account("inefficiency", 30 * MS, 0.3),)
    return waiting(10, num_workers=workers, facts={"process_load": load}, accounts=slowed, **fields)


def test_workers_that_crowd_the_cores_are_too_many():
    (found,) = crowd().raised("BRR406")
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx(10 * MS)
    assert found.saving.ceiling_ns == pytest.approx(40 * MS) and found.where == (LOOP,)


def test_a_crowd_takes_no_more_than_it_ran_nor_than_the_step_waited_for_cores():
    """Of 100 ms 10 wait for a batch. One batch costs workers 20 ms of CPU time; threads waited 7 ms for a core."""
    ran = crowd()
    ran.extra["workers"] = (worker(20),)
    assert ran.raised("BRR406")[0].saving.ceiling_ns == pytest.approx((10 + 20) * MS)
    for waiting_load, taken in ((0.07, 7), (0.5, 20), (0.0, 0)):
        ran.facts = replace(ran.facts, waiting_load=waiting_load)
        assert ran.raised("BRR406")[0].saving.ceiling_ns == pytest.approx((10 + taken) * MS)
    asleep = crowd()
    asleep.facts = replace(asleep.facts, waiting_load=2.0)
    assert asleep.raised("BRR406")[0].saving.ceiling_ns == pytest.approx(100 * MS), "two threads, of one step"


def test_a_crowd_that_the_step_waits_for_costs_what_it_delivers_less():
    """6 times the cores: 5/7 of the 28 % that 8 times the cores deliver less."""
    slowed = waiting(60, num_workers=12, facts={"process_load": 1.9})
    assert slowed.raised("BRR406")[0].saving.expected_ns == pytest.approx(0.28 * 5 / 7 * 100 * MS)
    assert not waiting(0.5, num_workers=12, facts={"process_load": 1.9}).raised("BRR406"), "the queue is full"


def test_workers_take_cores_from_the_step_whoever_else_has_the_rest():
    shared = waiting(10, num_workers=12, facts={"process_load": 0.5, "other_load": 1.2})
    assert shared.raised("BRR406")
    assert not waiting(10, num_workers=12, facts={"process_load": 0.5, "other_load": 1.0}).raised("BRR406")


@pytest.mark.parametrize("case", [crowd(4), crowd(12, load=1.0), waiting(10, num_workers=12)])
def test_workers_with_room_are_not_too_many(case):
    assert not case.raised("BRR406")


def epochs(persistent: bool = False, num: int = 5, workers: int = 2) -> Case:
    return waiting(
        1, num_workers=workers, persistent_workers=persistent, num_batches=20 * num, waits=(1.0,) * 20,
        iter_ns=(int(100 * MS),) * num, first_wait_ns=(int(101 * MS),) * num,
    )  # fmt: skip


def test_workers_started_every_epoch_cost_start_and_first_batch():
    (found,) = epochs().raised("BRR404")
    assert found.saving.expected_ns == pytest.approx(0.85 * 10 * MS) and found.where == (LOOP,)
    assert found.evidence["start_per_epoch"].value == pytest.approx(200 * MS)


def test_stopping_workers_and_the_slow_first_step_cost_too():
    """20 steps an epoch; 60 ms to stop the workers and 140 beside the usual 100 - 1 of the first step: 10 ms a step."""
    case = epochs()
    facts = replace(case.facts.loaders[0], end_wait_ns=(int(60 * MS),) * 5, first_step_ns=(int(239 * MS),) * 5)
    case.facts = replace(case.facts, loaders=(facts,))
    case.step = replace(case.step, walls=(100.0 * MS,) * 20)
    assert case.raised("BRR404")[0].saving.expected_ns == pytest.approx(0.85 * 20 * MS)


def test_workers_that_stay_load_first_batches_all_the_same():
    """A batch of 41 ms, handed over in 1.5, is 41.5 ms later than the usual wait: 2.1 of the 10 ms a step stay."""
    case = epochs()
    case.extra["workers"] = (worker(30), worker(11, COLLATE, kind="collate"), worker(500, kind="other"))
    assert case.raised("BRR404")[0].saving.expected_ns == pytest.approx((10 - 41.5 / 20) * MS)
    case.extra["workers"] = (worker(190),)
    assert not case.raised("BRR404"), "what first batches are late is loading them, and stays"
    case.extra["workers"] = (worker(125),)
    saving = case.raised("BRR404")[0].saving
    assert saving.low_ns == saving.expected_ns == pytest.approx((10 - 125.5 / 20) * MS)


@pytest.mark.parametrize("case", [epochs(persistent=True), epochs(num=1), epochs(workers=0)])
def test_workers_that_stay_or_start_once_are_silent(case):
    assert not case.raised("BRR404")


def test_too_many_workers_have_their_part_of_the_start():
    case = epochs(workers=8)
    case.facts = replace(case.facts, process_load=2.0)
    crowded, started = case.raised("BRR406")[0], case.raised("BRR404")[0]
    assert started.saving.expected_ns == pytest.approx(0.5 * 0.85 * 10 * MS)
    assert crowded.evidence["start_per_step"].value == pytest.approx(5 * MS)


def slow_ones(*slow: float, usual: float = 2.0, count: int = 40, **fields: Any) -> Case:
    waits = (usual,) * (count - len(slow)) + slow
    return waiting(usual, line(2, GETITEM, phase="data"), waits=waits, **fields)


def test_a_slow_sample_in_many_is_told_by_what_it_adds_to_the_mean():
    case = slow_ones(200.0, 202.0)
    (found,) = case.raised("BRR407")
    assert found.evidence["slow_batches"].value == 2 and raised(case) == ["BRR407"]
    assert found.saving.expected_ns == pytest.approx((198 + 200) / 40 * MS)
    assert found.saving.ceiling_ns == pytest.approx((198 + 200) / 40 * (1 + 0.5**0.5) * MS), "two are a small sample"


def test_a_slow_sample_is_the_data_sets_where_no_line_was_seen():
    (found,) = waiting(2.0, waits=(2.0,) * 38 + (200.0, 202.0)).raised("BRR407")
    assert found.where == (waiting(2.0).facts.loaders[0].dataset_span,)


def test_the_tail_of_item_by_item_fetches_goes_with_them():
    waits = (20.0,) * 38 + (300.0, 300.0)
    case = waiting(20, waits=waits, in_memory=True, batch_size=1024, facts={"process_load": 2.0})
    assert raised(case) == ["BRR408"]


@pytest.mark.parametrize(("slow", "rare"), [(13, True), (14, False)])
def test_more_than_a_third_of_the_waits_is_not_rare(slow: int, rare: bool):
    """Of 40, without workers."""
    assert bool(slow_ones(*(200.0,) * slow).raised("BRR407")) is rare


def test_steps_that_are_late_everywhere_are_not_the_loaders():
    case = slow_ones(200.0, 202.0)
    case.step = replace(case.step, walls=tuple(w + 20 * MS for w in case.step.waits))
    assert case.raised("BRR407")
    late = tuple(w + (320 * MS if n % 10 == 0 else 20 * MS) for n, w in enumerate(case.step.waits))
    case.step = replace(case.step, walls=late)
    assert not case.raised("BRR407")


def test_on_a_crowded_machine_only_a_late_step_is_a_slow_sample():
    late = slow_ones(*(90.0,) * 4, num_workers=1, facts={"other_load": 1.2})
    assert not late.raised("BRR407")
    assert slow_ones(*(90.0,) * 4, num_workers=1).raised("BRR407")
    assert slow_ones(*(400.0,) * 4, num_workers=1, facts={"other_load": 1.2}).raised("BRR407")


def test_a_long_wait_recurs_from_the_first_round_on():
    """Every fourth step of sixteen: one in the first four, unless these were fetched before; and one in the last."""

    def waits(*at: int) -> list[float]:
        return [90.0 if n in at else 1.0 for n in range(16)]

    assert period(waits(0, 4, 8, 12)) == period(waits(3, 7, 11, 15)) == period(waits(4, 8, 12)) == 4
    assert period(waits(3, 7, 11)) is None


def test_bursts_of_workers_and_steady_waits_are_not_slow_samples():
    bursts = waiting(0, waits=(0.0, 0.0, 0.0, 80.0) * 10, num_workers=4, facts={"process_load": 1.9})
    assert raised(bursts) == ["BRR401"], "the mean wait is 20 ms, though the median step waits for nothing"
    assert not slow_ones().raised("BRR407")
    assert not slow_ones(200.0, count=8).raised("BRR407"), "too few steps to say what is usual"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_steps_that_ask_for_no_batch_are_no_usual_batches(num_workers: int):
    """Three updates per batch: every batch takes 9 ms, and two of three steps ask for none. A trace does not say how
    many workers there are: one stands for any number."""
    waits = (9 * MS, 0.0, 0.0) * 12
    case = Case(
        ms=2, step=StepStats(count=36, plain_count=36, waits=waits, mean_ns=5 * MS),
        facts=Facts(loaders=(LoaderFacts(0, num_workers=num_workers),)), accounts=(Account("host", 2 * MS, 1.0),),
        signals=frozenset({"ops", "plain", "facts", "offline"}),
    )  # fmt: skip
    assert raised(case) == ["BRR405"]
    (found,) = case.raised("BRR405")
    assert found.evidence["data_wait"].value == pytest.approx(3 * MS)
    if num_workers:
        assert "every 15.0 ms" in found.message and "every 6.00 ms" in found.message, "a batch is three steps of 5 ms"
        assert found.saving.ceiling_ns == pytest.approx(3 * MS), "of the mean step, not of the median one"


def test_a_slow_batch_among_steps_that_ask_for_none():
    """Of 20 batches 18 take 2 ms and two take 102: 200 ms over 40 steps."""
    waits = ((2.0, 0.0) * 9 + (102.0, 0.0)) * 2
    (found,) = waiting(1, line(2, GETITEM, phase="data"), waits=waits).raised("BRR407")
    assert found.message.startswith("2 of 20 batches") and "the usual one takes 2.00 ms" in found.message
    assert found.saving.expected_ns == pytest.approx(200 / 40 * MS)


def test_late_first_batches_belong_to_the_start_of_workers():
    case = slow_ones(
        100.0, 100.0, num_workers=1, num_batches=40, iter_ns=(int(9 * MS),) * 2, first_wait_ns=(int(100 * MS),) * 2
    )
    assert case.raised("BRR404") and not case.raised("BRR407")


def padded(
    share: float | None, *ops: Any, shape: tuple[int, ...] = (16, 512), num_bytes: int = 65536,
    longest: int | None = None,
) -> Case:  # fmt: skip
    given = InputFacts(shape, "torch.int64", num_bytes, share, 0.0, longest, LINE)
    looked_up = (op("embedding", (2000, 64), shape, ms=0.0),) if ops else ()
    return Case(
        ops=(*looked_up, *ops), facts=Facts(inputs=(given, InputFacts((16,), "torch.int64", 128, 0.9))),
        phases=(("forward", 30 * MS), ("loss", 5 * MS), ("backward", 50 * MS), ("optimizer", 15 * MS)),
    )  # fmt: skip


def test_padding_is_priced_by_what_the_model_does_on_it():
    (found,) = padded(0.84).raised("BRR409")
    assert found.where == (LINE,) and found.saving.ceiling_ns == pytest.approx(0.84 * 85 * MS)
    assert found.saving.expected_ns == pytest.approx((0.84 - 0.15) / 0.85 * 85 * MS)


def test_a_text_that_grows_by_one_word_again_and_again_is_not_padded():
    def said(*lengths: int) -> list[Any]:
        return [op("embedding", (2000, 64), (16, length), ms=0.1, calls=1 / len(lengths)) for length in lengths]

    assert padded(0.84, *said(512)).raised("BRR409")
    grows = padded(0.84)
    grows.ops = tuple(said(511, 512, 513))
    assert not grows.raised("BRR409")


def test_counts_of_words_that_nobody_looks_up_are_not_padded():
    counts = padded(0.84)
    counts.ops = (op("addmm", (64,), (16, 512), (512, 64), ms=10),)
    assert not counts.raised("BRR409")


def test_padding_to_the_longest_of_the_batch_brings_no_more_than_that():
    """Half is padding, and the longest row fills three quarters: the rest takes sorting or packing."""
    (found,) = padded(0.5, longest=384).raised("BRR409")
    assert found.saving.expected_ns == pytest.approx(0.25 * 85 * MS)
    assert found.saving.ceiling_ns == pytest.approx(0.5 * 85 * MS)
    assert "longest row 384" in found.message and found.advice.startswith("Pad each batch to its longest row")
    several = padded(0.5, longest=384)
    first = several.facts.inputs[0]
    several.facts = Facts(inputs=(first, replace(first, longest=448)))
    assert several.raised("BRR409")[0].saving.expected_ns == pytest.approx(0.1875 * 85 * MS), "batches differ"
    (full,) = padded(0.5, longest=512).raised("BRR409")
    assert full.saving.expected_ns == 0 and full.saving.ceiling_ns > 0 and full.severity == "note"
    assert "longest row" not in full.advice


def test_shorter_rows_leave_what_torch_and_python_take_per_op():
    add = op("add", (16, 512), ms=30, dispatch_ns=5 * MS)
    case = padded(0.5, add, longest=256)
    case.extra = {"host": (host(10, phase="forward"), host(10, phase="optimizer"))}
    (found,) = case.raised("BRR409")
    assert found.saving.expected_ns == pytest.approx(0.5 * (85 - 10 - 5) * MS)
    assert found.holds_ns == pytest.approx(0.5 * 30 * MS), "of the model's ops what they work on padding, not all"


@pytest.mark.parametrize(("share", "longest", "expected"), [(0.5, 384, 0.25), (0.5, 512, 0.0), (0.05, 512, None)])
def test_labels_that_are_mostly_ignored_are_no_padding(share, longest, expected):
    """Of a masked language model most labels are -100; what its ids are padded by is what counts."""
    case = padded(share, longest=longest)
    ids = case.facts.inputs[0]
    labels = replace(ids, pad_share=0.9, pad_value=-100.0, longest=60)
    positions = replace(ids, pad_share=0.0, pad_value=None, longest=512)
    case.facts = Facts(inputs=(labels, ids, positions))
    found = case.raised("BRR409")
    assert [each.saving.expected_ns for each in found] == (
        [] if expected is None else [pytest.approx(expected * 85 * MS)]
    )


def of_many(
    real: float = 0.2,
    longest: float = 0.5,
    bucketing: float = 0.95,
    long_share: float = 0.1,
    full: bool = False,
    **fields: Any,
) -> Case:
    """As padded(), with the lengths of forty batches."""
    case = padded(0.84)
    ways = Ways(real, longest, bucketing, 0.99, 0.995, long_share, full)
    found = Sequences(40, 16, 512, real, longest, 1000.0, given=case.facts.inputs[0], ways=ways,
                      **{"masked": True} | fields)  # fmt: skip
    case.extra = {"sequences": found}
    return case


def test_many_batches_say_what_each_way_saves(snapshot: object):
    (found,) = of_many().raised("BRR409")
    assert found.saving.expected_ns == pytest.approx((1 - 0.2 / 0.95) * 85 * MS), "batches of like length"
    assert found.saving.low_ns == pytest.approx(0.8 * (1 - 0.2 / 0.5) * 85 * MS), "the longest row of each batch"
    assert found.saving.ceiling_ns == pytest.approx(0.8 * 85 * MS)
    assert found.message.startswith("80.0 % of what 40 batches of up to 16x512 hold is padding")
    assert found.advice == snapshot
    evidence = {name: each.value for name, each in found.evidence.items()}
    assert evidence["saved_by_longest"] == round(0.6 * 85 * MS) and evidence["batches"] == 40
    assert evidence["saved_by_bucketing"] == round(found.saving.expected_ns)
    assert [evidence[n] for n in ("pad_to_cap", "pad_in_collate", "bucketing", "packing", "packing_bound")] == [
        0.2, 0.5, 0.95, 0.99, 0.995
    ]  # fmt: skip


def test_where_no_mask_says_what_padding_is_nothing_is_sure():
    """Pictures in 16 shades whose margin is 0 got 'at least 7.84 ms' of pixels that all count."""
    (found,) = of_many(masked=False).raised("BRR409")
    assert "heeds a mask (no attention_mask was found) and no loss counts padding. Then 50.0 % of" in found.advice
    assert found.saving.low_ns == 0 and found.saving.expected_ns > 0
    assert found.remedies == (), "a tuning of makemore spent its first heats on what can be cut by no mask"
    (sorted_,) = of_many(longest=0.2, masked=False).raised("BRR409")
    assert sorted_.remedies == ("bucketing",)
    (said,) = of_many().raised("BRR409")
    assert said.remedies == ("trim_padding", "bucketing", "packing")


@pytest.mark.parametrize(
    ("lengths", "masked", "raised"),
    [
        (((400, 90), (399, 10)), False, False),
        (((400, 90), (100, 4), (401, 6)), False, False),
        (((400, 90), (100, 20)), False, True),
        (((100, 1), (400, 1)), False, True),
        (((8, 30), (20, 40), (30, 30)), False, True),
        (((400, 100),), True, True),
    ],
    ids=["a margin", "an outlier", "lengths differ", "two", "short ones", "a mask says so"],
)
def test_runs_that_all_begin_at_one_place_are_no_padding(lengths: Any, masked: bool, raised: bool):
    assert bool(of_many(lengths=lengths, masked=masked).raised("BRR409")) == raised


def test_padding_to_the_longest_row_is_told_of_the_programs_own_batches() -> None:
    """It sorts already, and pads to caps: what random batches would reach says nothing of that."""
    case = of_many(real=0.7, longest=0.85, bucketing=0.95)
    own = case.extra["sequences"]
    case.extra = {"sequences": replace(own, ways=replace(own.ways, pad_in_collate=0.45))}
    (found,) = case.raised("BRR409")
    assert "counts padding. Then 85.0 % of what is computed on are tokens, 70.0 % now." in found.advice


def test_where_a_sample_has_several_sequences_like_lengths_save_half_and_surely_nothing():
    """Anchors and positives of an encoder of sentences: 11 of 66 ms came back where 14 were the least."""

    def raised(real: float):
        case = of_many(real=real, longest=0.5)
        case.extra = {"sequences": replace(case.extra["sequences"], several=True)}
        return case.raised("BRR409")[0]

    padded_apart = raised(0.5)
    assert "16x512 hold in the first sequence of each sample is padding" in padded_apart.message
    assert padded_apart.saving.expected_ns == pytest.approx(0.5 * (1 - 0.5 / 0.95) * 85 * MS)
    assert padded_apart.saving.low_ns == 0 and "Like lengths (of a sample's sequences together)" in padded_apart.advice
    assert raised(0.2).saving.low_ns == pytest.approx(0.8 * 0.6 * 85 * MS), "the longest row of each is cut surely"


def test_many_batches_count_and_not_the_three_that_the_model_was_seen_to_get():
    assert not of_many(real=0.93, longest=0.95).raised("BRR409")


def test_batches_of_like_length_already_are_not_promised_again():
    """What the program's own batches reach counts where it is more than a simulation."""
    (found,) = of_many(real=0.2, longest=0.97, bucketing=0.95).raised("BRR409")
    assert found.saving.expected_ns == pytest.approx((1 - 0.2 / 0.97) * 85 * MS)
    (full,) = of_many(real=0.85, longest=0.95, bucketing=0.8).raised("BRR409")
    assert full.evidence["saved_by_bucketing"].value == 0, "a small sample's simulation may be worse than what is"


def test_nothing_to_gain_by_packing_is_said():
    (found,) = of_many(long_share=0.7, full=True).raised("BRR409")
    assert found.advice.endswith("Nothing to gain by packing: 70.0 % of the sequences exceed half of 512.")
    assert "PackedDataset" not in found.advice
    (padded_to_longest,) = of_many(real=0.5, longest=0.5).raised("BRR409")
    assert padded_to_longest.advice.startswith("Like lengths together, ")
    assert "95.0 % are tokens, 50.0 % now." in padded_to_longest.advice
    assert padded_to_longest.saving.low_ns == pytest.approx(0.8 * padded_to_longest.saving.expected_ns)


def test_padding_is_told_where_it_is_made():
    pads = op("constant_pad_nd", (300,), phase="data", where=(COLLATE, LOOP), ms=0.1)
    assert padded(0.8, pads).raised("BRR409")[0].where == (COLLATE, LOOP)
    case = padded(0.8)
    made = {"created_span": LOOP, "dataset_span": GETITEM, "collate_span": COLLATE}
    for innermost in list(reversed(made)):
        case.facts = replace(case.facts, loaders=(loader(**{"dataset_span": None, **made}),))
        assert case.raised("BRR409")[0].where == (made[innermost],)
        del made[innermost]


def test_attention_on_padding_is_quadratic():
    fused = op("_scaled_dot_product_flash_attention_for_cpu", (16, 8, 512, 64), ms=10)
    scores = op("softmax", (16, 8, 512, 512), ms=10)
    (found,) = padded(0.5, fused, scores).raised("BRR409")
    assert found.saving.ceiling_ns == pytest.approx((20 * 0.75 + 65 * 0.5) * MS)


@pytest.mark.parametrize("case", [padded(0.08), padded(0.15), padded(None), padded(0.9, shape=(512,)), Case()])
def test_little_padding_or_none_seen_is_silent(case):
    assert not case.raised("BRR409")


def test_a_small_padded_input_beside_a_large_one_is_not_what_the_model_works_on():
    case = padded(0.9)
    case.facts = Facts(inputs=(*case.facts.inputs, InputFacts((16, 3, 224, 224), "float32", 9633792)))
    assert not case.raised("BRR409")


def test_loader_with_most_batches_is_the_loops():
    case = transform()
    other = replace(loader(num_workers=9, num_batches=3), id=1)
    case.facts = replace(case.facts, loaders=(other, *case.facts.loaders))
    assert case.raised("BRR401")[0].evidence["num_workers"].value == 0


def test_a_usual_wait_is_the_ledgers_even_where_few_waits_are_known():
    case = transform()
    case.step = StepStats(count=9, plain_count=9, waits=(40 * MS,) * 9)
    assert case.raised("BRR401")[0].saving.ceiling_ns == 40 * MS


def test_one_wait_is_told_where_batches_come_in_bursts():
    """The accounts have the median wait: a mean beside it is called one, of the mean step."""
    from gobrrr.recording.model.facts import LoaderFacts
    from gobrrr.rules.data.loader_advice import is_of_few, told
    from gobrrr.rules.data.wait_stages import Wait

    step = StepStats(count=60, plain_count=50, mean_ns=130 * MS)
    ledger = Case(step=step, accounts=(Account("data_wait", 2 * MS, 0.02),)).ledger
    burst, usual = (Wait(LoaderFacts(0), ns * MS, None, None, None, ()) for ns in (26, 2.1))
    assert "26.0 ms per step on average (20.0 %; median 2.00 ms)" in told(burst, ledger)
    assert "2.00 ms (2.0 %) of every step" in told(usual, ledger)
    assert is_of_few(burst, ledger) and not is_of_few(usual, ledger)


def test_what_few_steps_wait_for_is_given_back_to_the_mean_step() -> None:
    """TSLib: 54.6 of the usual step's 54.6 ms were to come back, of which 0.2 ms are a wait."""
    case = transform()
    waits = (0.2 * MS,) * 35 + (120 * MS,) * 25
    case.step = StepStats(count=60, plain_count=60, mean_ns=176 * MS, waits=waits)
    case.accounts = (Account("data_wait", 0.2 * MS, 0.002),)
    (found,) = case.raised("BRR401")
    assert found.rare and "per step on average" in found.message
    assert not transform().raised("BRR401")[0].rare


@pytest.mark.parametrize(
    ("waits", "every"),
    [
        ([40, 1, 1, 1] * 3, 4),
        ([1, 1, 40, 1] * 3, 4),
        ([40, 1, 1, 1] * 2, None),  # twice is chance
        ([1, 40, 1, 1, 40, 1, 40, 1, 1, 1, 1, 1], None),
        ([40, 1, 1, 40, 1, 1, 40, 1, 1, 1, 1, 1, 1, 1], None),  # it came to an end
        ([40] * 12, None),
        ([0, 0, 0, *[20, 1, 22, 19, 0, 21] * 2], 3),  # three workers, two of them a little apart
        ([20, 1, 22, 3, 9, 40, 2, 17, 30, 1, 8, 25], None),
        ([], None),
    ],
)
def test_waits_recur_with_every_round_of_the_workers(waits: list[float], every: int | None):
    assert period(waits) == every


def test_a_trace_whose_workers_are_too_slow_says_what_they_deliver_and_how_many_it_takes():
    """Four workers, a batch of each comes 160 ms after the last; the step alone takes 100, so that a round of four
    takes 440 ms where 400 would do: 110 against 100 ms per batch, and five workers are enough."""
    waits = (40 * MS, 1.0, 1.0, 1.0) * 3
    walls = tuple(100 * MS + wait for wait in waits)
    step = StepStats(count=12, plain_count=12, waits=waits, walls=walls, mean_ns=110 * MS)
    case = Case(
        ms=110, step=step, facts=Facts(loaders=(LoaderFacts(0, num_workers=1),)),
        accounts=(Account("data_wait", 10 * MS, 0.09),), signals=frozenset({"ops", "plain", "facts", "offline"}),
    )  # fmt: skip
    assert not case.raised("BRR407") and not case.raised("BRR401")
    (found,) = case.raised("BRR405")
    assert "every 110 ms" in found.message and "every 100 ms" in found.message and "every 4 steps" in found.message
    assert found.evidence["workers_needed"].value == 5 and found.saving.ceiling_ns == pytest.approx(10 * MS)


def test_the_model_tells_the_remedies_how_many_workers_and_what_they_bring():
    """90 ms of samples and a step of 10 on four cores: four workers bring a batch each 23 ms, one each 91.5."""
    case = waiting(90, line(85, GETITEM, LOOP, phase="data"), STACK, facts={"process_load": 0.9},
                   accounts=())  # fmt: skip
    case.machine = replace(machine(), effective_cores=measured(4, "1"), logical_cores=4)
    (found,) = case.raised("BRR405")
    said = {name: quantity.value for name, quantity in found.evidence.items()}
    assert said["workers"] == 4 and said["headspace"] == 90 * MS and said["headspace_by"] == "plain phase"
    assert said["saved_by_workers"] == pytest.approx((100 - (90 + HANDOVER) / 4) * MS, abs=1)
    assert said["saved_by_one"] == pytest.approx((10 - HANDOVER) * MS, abs=1)
    assert case.raised("BRR401")[0].evidence["workers"].value == 4, "whichever finding is asked"


def test_workers_hide_a_slow_batch_as_long_as_others_are_ready():
    """Of 40 steps of 100 ms two wait 350 longer for their batch: two workers hold four, for three steps."""
    (found,) = slow_ones(352.0, 352.0).raised("BRR407")
    assert found.evidence["workers"].value == 3, "five steps: with two workers 50 ms are left of each"
    assert found.evidence["saved_by_workers"].value == pytest.approx(2 * 350 / 40 * MS)
    (one,) = slow_ones(352.0, 352.0, num_workers=1).raised("BRR407")
    assert one.evidence["saved_by_workers"].value == pytest.approx(2 * 350 / 40 * MS)
    assert one.evidence["workers"].value == 3, "100 ms of each are hidden already"


def test_the_bound_is_told_with_its_interval():
    """Of 100 waits of 36 to 44 ms the median's interval; of bursts the mean's."""
    steady = transform()
    steady.step = replace(steady.step, waits=tuple((36 + 8 * n / 99) * MS for n in range(100)))
    said = {name: quantity.value for name, quantity in steady.raised("BRR401")[0].evidence.items()}
    assert said["headspace"] == 40 * MS
    assert 39 * MS < said["headspace_low"] < 40 * MS - 1 and 40 * MS + 1 < said["headspace_high"] < 41 * MS
    bursts = waiting(0, waits=(0.0, 0.0, 0.0, 80.0) * 10, num_workers=4, facts={"process_load": 1.9})
    said = {name: quantity.value for name, quantity in bursts.raised("BRR401")[0].evidence.items()}
    error = 1.96 * 80 * (0.75 * 0.25 * 40 / 39) ** 0.5 / 40**0.5
    assert said["headspace"] == 20 * MS
    assert said["headspace_low"] == pytest.approx((20 - error) * MS, rel=1e-6)
    assert said["headspace_high"] == pytest.approx((20 + error) * MS, rel=1e-6)


@pytest.mark.parametrize(
    ("workers", "equal", "told"),
    [(2, 20, True), (2, 17, True), (2, 0, False), (2, 40, False), (4, 30, True), (4, 20, False), (1, 20, False)],
)
def test_workers_that_each_give_all_samples_make_the_epoch_longer(workers: int, equal: int, told: bool):
    case = waiting(10.0, num_workers=workers, stream=True, num_compared=40, num_equal=equal, dataset="Clicks")
    found = case.raised("BRR412")
    assert [each.saving.expected_ns for each in found] == (
        [pytest.approx((1 - 1 / workers) * 100 * MS)] if told else []
    )
    assert all(f"each of {workers} workers" in each.message for each in found)
    few = waiting(10.0, num_workers=workers, stream=True, num_compared=2 * workers - 1, num_equal=workers - 1)
    assert not few.raised("BRR412")
