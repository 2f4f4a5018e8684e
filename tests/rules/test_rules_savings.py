"""What the rules of bands 3, 4, 5 and 7 promise at least, and where each of them begins to speak."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.recording.model.facts import Facts, Settings, Span
from tests.rules import test_rules_data as data
from tests.rules import test_rules_host as in_step
from tests.rules import test_rules_overhead as overhead
from tests.rules import test_rules_sync as devices
from tests.support.handmade import ALL_SIGNALS, LINE, MS, OTHER_LINE, Case, op, product
from tests.support.rule_lines import COLLATE, GETITEM, LOOP, host, line, lines, waiting, worker

SYNC = (("cudaStreamSynchronize", 1.0, 20 * MS, (LINE,)),)
STACKED = line(40, COLLATE, phase="data", torch__utils__data___utils__collate__default_collate=40.0)
READING = data.waiting(60, num_workers=2, workers=(worker(190, cpu=0.05),), facts={"process_load": 0.4})
MEMORY = data.waiting(40, in_memory=True, batch_size=1024, facts={"process_load": 2.0})


@pytest.mark.parametrize(
    ("case", "code", "low"),
    [
        (overhead.recurrence(), "BRR301", 0.3 / 0.7),
        (in_step.metric(30), "BRR302", 0.3 / 0.7),
        (lines(line(20, LOOP, copy__deepcopy=20.0)), "BRR303", 0.6 / 0.95),
        (in_step.collected(20, LOOP), "BRR306", 0.6 / 0.95),
        (in_step.collected(20), "BRR306", 0.2 / 0.8),
        (overhead.deterministic(), "BRR308", 0.3 / 0.9),
        (overhead.threads(1), "BRR309", 0.4 / 0.7),
        (overhead.threads(16), "BRR309", 0.25),
        (overhead.subnormal(), "BRR310", 0.3 / 0.8),
        (data.transform(), "BRR401", 0.25 / 0.7),
        (READING, "BRR402", (100 - (1 + data.WITHIN) * 50) / 50),
        (waiting(40, STACKED, facts={"process_load": 2.0}), "BRR403", 0.3 / 0.8),
        (data.epochs(), "BRR404", 0.4 / 0.85),
        (data.slow_ones(200.0, 200.0), "BRR407", 0.3),
        (MEMORY, "BRR408", 0.5 / 0.9),
        (data.padded(0.8), "BRR409", 0.0),
        (devices.case(devices.device(syncs=SYNC)), "BRR501", 0.3 / 0.8),
        (devices.case(devices.device(copies=(devices.PAGEABLE,), exposed_copy_ns=15 * MS)), "BRR502", 0.4 / 0.7),
        (devices.case(devices.device(copies=(devices.PINNED,), exposed_copy_ns=15 * MS)), "BRR502", 0.2 / 0.7),
        (devices.case(devices.device(**devices.LAUNCHING)), "BRR504", 0.2 / 0.6),
        (devices.ranks(30), "BRR701", 0.1 / 0.6),
    ],
)
def test_at_least_this_part_of_what_is_expected(case, code, low):
    (found,) = case.raised(code)
    assert found.saving.low_ns == pytest.approx(low * found.saving.expected_ns)


def copies(ms: float) -> Case:
    return devices.case(devices.device(copies=(devices.PINNED,), exposed_copy_ns=ms * MS))


def small_loop(ms: float) -> Case:
    return overhead.recurrence(ms=ms)


def blocked(ops_ms: float, between_ms: float) -> Case:
    ops = (op("fill", (8, 8), ms=ops_ms, where=(LOOP,)),)
    return Case(ops=ops, extra={"lines": (line(30, LOOP, waiting=True),), "host": (host(between_ms, LOOP),)})


def unlike(share: float) -> Case:
    """A line with `share` of its op time in a loop, the rest in one large op."""
    rest = op("conv", (64, 64), ms=1.024 * (1 - share) / share, calls=1.0)
    return Case(ops=(overhead.tiny("mm", 256), rest), ms=10)


def above_floor(share: float) -> Case:
    """A loop of ops of 50 us of which `share` is floor."""
    each = op("mm", (64, 64), ms=50 * 0.05, calls=50.0, floor_ns=share * 2.5 * MS)
    return Case(ops=(each,), ms=10)


@pytest.mark.parametrize(
    ("make", "code", "silent", "told"),
    [
        (small_loop, "BRR301", 97.0, 90.0),  # 2.8 of 4 ms are 3 % of 93
        (unlike, "BRR301", 0.70, 0.80),
        (above_floor, "BRR301", 0.55, 0.45),
        (lambda ms: in_step.metric(ms), "BRR302", 4.9, 5.1),
        (lambda ms: lines(line(ms, LOOP, copy__deepcopy=ms)), "BRR303", 2.9, 3.2),
        (lambda ms: blocked(ms, 28), "BRR315", 3.2, 2.8),
        (lambda ms: blocked(0.1, ms), "BRR315", 14, 16),
        (lambda ms: in_step.collected(ms), "BRR306", 3.7, 3.8),
        (lambda share: overhead.subnormal(share=share), "BRR310", 0.009, 0.011),
        (lambda times: overhead.subnormal(times=times), "BRR310", 2.9, 3.1),
        (lambda ms: waiting(ms, facts={"process_load": 2.0}), "BRR401", 4.9, 5.1),
        (lambda ms: waiting(ms, STACKED, facts={"process_load": 2.0}), "BRR403", 4.9, 5.1),
        (lambda workers: data.crowd(round(workers)), "BRR406", 4, 5),
        (lambda load: data.crowd(12, load=load), "BRR406", 1.59, 1.61),
        (lambda w: data.slow_ones(w, w, usual=10.0), "BRR407", 29, 91),
        (lambda us: waiting(us * 0.8, in_memory=True, batch_size=800, facts={"process_load": 2.0}), "BRR408", 51, 49),
        (lambda share: data.padded(share, num_bytes=4096), "BRR409", 0.16, 0.19),
        (lambda ms: devices.case(devices.device(syncs=(("s", 1.0, ms * MS, ()),))), "BRR501", 3.7, 3.8),
        (copies, "BRR502", 4.9, 5.1),
        (lambda ms: devices.ranks(ms), "BRR701", 4.9, 5.1),
    ],
)
def test_where_a_rule_begins_to_speak(make: Callable[[float], Case], code: str, silent: float, told: float):
    assert not make(silent).raised(code)
    assert make(told).raised(code)


def test_a_launch_bound_step_needs_both_the_launches_and_their_cost():
    few = {**devices.LAUNCHING, "idle_ns": 16 * MS, "idle_by_cause": (("launch", 7 * MS), ("data_wait", 9 * MS))}
    assert not devices.case(devices.device(**few)).raised("BRR504"), "less than half of the idle time"
    most = {**few, "idle_by_cause": (("launch", 9 * MS),)}
    assert devices.case(devices.device(**most)).raised("BRR504")
    long_step = devices.case(devices.device(**devices.LAUNCHING))
    long_step.ms = 260.0  # 40 ms are 15.4 % of it
    assert long_step.raised("BRR504")
    few = {**devices.LAUNCHING, "idle_by_cause": (("launch", 21 * MS),)}
    long_step = devices.case(devices.device(**{**few, "busy_ns": 400 * MS, "idle_ns": 41 * MS}))
    long_step.ms = 450.0
    assert not long_step.raised("BRR504"), "idle 9 % of the step"


def test_only_copies_between_host_and_device_are_counted():
    inside = ("Memcpy DtoD (Device -> Device)", 9, 1 << 30, 9 * MS)
    back = ("Memcpy DtoH (Device -> Pageable)", 1, 64 << 20, 9 * MS)
    (found,) = devices.case(devices.device(copies=(inside, back, devices.PINNED), exposed_copy_ns=15 * MS)).raised(
        "BRR502"
    )
    assert found.evidence["copies"].value == 3 and found.evidence["pageable"].value == round(9 * MS)
    (found,) = devices.case(devices.device(copies=(inside,), exposed_copy_ns=15 * MS)).raised("BRR502")
    assert found.evidence["copies"].value == 9, "where it has no other, it has these"


def test_python_is_bounded_by_what_was_sampled_around_it():
    inner = Span("metrics.py", 5, "confusion")
    call = Span("train.py", 80, "main")
    spent = host(60, inner, call)
    signals = ALL_SIGNALS
    sampled = (line(10, inner, call), line(25, call), line(40, OTHER_LINE))
    (found,) = Case(signals=signals, extra={"host": (spent,), "lines": sampled}).raised("BRR302")
    assert found.evidence["python_time"].value == 35 * MS, "the function and its call, and no other line"
    ops = (op("argmax", (8, 8), ms=5, where=(call,)), op("mm", (8, 8), ms=30, where=(OTHER_LINE,)))
    (found,) = Case(ops=ops, signals=signals, extra={"host": (spent,), "lines": sampled}).raised("BRR302")
    assert found.evidence["python_time"].value == 30 * MS, "less the ops there"
    alone = (line(10, inner), line(25, call))
    (found,) = Case(signals=signals, extra={"host": (host(60, inner),), "lines": alone}).raised("BRR302")
    assert found.evidence["python_time"].value == 10 * MS, "nobody calls it"


def test_accumulation_multiplies_calls_and_a_loop_over_samples_does_too():
    from gobrrr.recording.model.facts import OptimizerFacts

    def stepped(calls: float, micro: float) -> Case:
        case = Case(ops=(overhead.tiny("mm", calls),), ms=0.6)
        case.facts = Facts(optimizers=(OptimizerFacts(0, micro_steps=micro),))
        return case

    assert not stepped(60, 4.0).raised("BRR301"), "fifteen layers in each of four micro-steps"
    assert stepped(68, 4.0).raised("BRR301")
    assert stepped(60, 60.0).raised("BRR301"), "one forward per sample"
    assert not stepped(12, 60.0).raised("BRR301"), "twelve"


def test_no_op_gains_less_than_nothing_from_threads():
    slower = overhead.threads(1)
    rates = slower.machine.matmul
    slower.machine = replace(slower.machine, matmul={"1": rates["all"], "all": rates["1"]})
    assert not slower.raised("BRR309")
    mixed = overhead.threads(1)
    mixed.ops += (op("exotic", (64, 64), ms=50, bound=None, floor_ns=0.0),)
    assert mixed.raised("BRR309")[0].saving.expected_ns == overhead.threads(1).raised("BRR309")[0].saving.expected_ns


def test_anomaly_counts_what_lies_between_ops_of_the_model_only():
    case = overhead.anomaly(extra={"host": (host(1.0, LINE, phase="forward"), host(3.0, LOOP, phase="optimizer"))})
    assert case.raised("BRR307")[0].evidence["between_ops"].value == 1 * MS


def test_the_words_fit_the_cause():
    (reads,) = data.reading().raised("BRR405")
    (computes,) = data.idle_cores(0.6).raised("BRR405")
    assert "one sample after the other" in reads.message and "idle" in computes.message
    (found,) = waiting(40, STACKED, collate="pad_batch", facts={"process_load": 2.0}).raised("BRR403")
    assert "100.0 % of it collates (pad_batch)" in found.message
    (found,) = READING.raised("BRR402")
    assert "95.0 % of it with the processor idle" in found.message
    (found,) = MEMORY.raised("BRR408")
    assert "39.1 us each" in found.message


def test_the_costliest_line_of_the_kind_that_waits_is_shown():
    parts = (worker(60, COLLATE, kind="collate"), worker(50, GETITEM), worker(40, Span("data.py", 14, "f")))
    case = waiting(60, num_workers=1, workers=parts, facts={"process_load": 1.8})
    assert case.raised("BRR401")[0].where == (GETITEM,), "fetching takes more than collating"


def test_workers_of_another_loader_are_not_asked_where_the_own_are_known():
    own, other = worker(100, cpu=0.05), replace(worker(900, cpu=1.0), loader=7)
    case = waiting(60, num_workers=1, workers=(own, other), facts={"process_load": 0.3})
    assert case.raised("BRR402")
    case.extra["workers"] = (replace(own, loader=7),)
    assert case.raised("BRR402"), "a recording that does not know whose they are"


def test_inputs_of_another_call_are_not_the_denormal_ones():
    from gobrrr.recording.model.facts import DenormalFacts, InputFacts

    case: Any = overhead.subnormal()
    elsewhere = InputFacts((1024, 1024), span=Span("eval.py", 3, "main"))
    case.facts = replace(case.facts, denormals=(DenormalFacts("input", 0.3, LINE),), inputs=(elsewhere,))
    assert not case.raised("BRR310")


def test_an_input_a_quarter_as_large_as_the_largest_still_counts():
    from gobrrr.recording.model.facts import InputFacts

    def beside(num_bytes: int) -> Case:
        case = data.padded(0.8, num_bytes=1000)
        case.facts = Facts(inputs=(*case.facts.inputs, InputFacts((16, 9), "int64", num_bytes)))
        return case

    assert beside(3900).raised("BRR409") and not beside(4100).raised("BRR409")
    case = data.padded(0.5, num_bytes=1000)
    case.facts = Facts(inputs=(*case.facts.inputs, InputFacts((16, 99), "int64", 1000, 0.8, span=OTHER_LINE)))
    assert "16x99" in case.raised("BRR409")[0].message, "of equal ones the one that is padded more"


def test_one_product_in_the_settings_default_needs_no_thread_setting():
    plain = Case(ops=(product(2048, 2048, 2048, gflops=90),), ms=200, facts=Facts(settings=Settings()))
    assert not plain.raised("BRR309"), "the ledger's threads are two"


def test_threads_are_too_many_from_half_as_many_again():
    assert not overhead.threads(3).raised("BRR309"), "3 on 2 cores: 1.5 times, and no more"
    assert overhead.threads(4).raised("BRR309")


def test_memory_traffic_gains_what_the_copy_ceilings_say():
    case = overhead.threads(1)
    doubled = tuple(replace(c, rate=replace(c.rate, median=c.threads * c.rate.median)) for c in case.machine.copy)
    case.machine = replace(case.machine, copy=doubled)
    case.ops = (op("add", (4096, 4096), ms=100, bytes=float(1 << 28), floor_ns=90 * MS),)
    assert case.raised("BRR309")[0].saving.expected_ns == pytest.approx(0.7 * 0.5 * 100 * MS)
    case.ops = (op("add", (4096, 4096), ms=100, bytes=float(1 << 28), floor_ns=90 * MS, phase="data"),)
    assert not case.raised("BRR309"), "the loader's ops are the loader's"


def test_an_op_that_repeats_and_one_that_grows_are_loops_and_a_mixture_is_none():
    few_shapes = tuple(overhead.tiny("cat", 8, (n, 8)) for n in range(1, 5))
    assert (
        not Case(ops=few_shapes, ms=0.3).raised("BRR301")
        or Case(ops=few_shapes, ms=0.3).raised("BRR301")[0].saving.low_ns == 0
    )
    ops = (overhead.tiny("mm", 64), op("stack", (64, 8), ms=0.02, calls=1.0, floor_ns=15_000.0))
    assert Case(ops=ops, ms=1).raised("BRR301")[0].evidence["calls_per_step"].value == 64, "not the one stack"


def test_the_longest_and_the_usual_slow_wait_are_in_the_evidence():
    (found,) = data.slow_ones(100.0, 200.0, 300.0).raised("BRR407")
    assert found.evidence["p95_wait"].value == 100 * MS and found.evidence["longest_wait"].value == 300 * MS


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (overhead.recurrence(), "BRR301"),
        (in_step.metric(30), "BRR302"),
        (overhead.threads(1), "BRR309"),
        (data.transform(), "BRR401"),
        (data.reading(), "BRR405"),
        (MEMORY, "BRR408"),
        (data.padded(0.3), "BRR409"),
    ],
)
def test_on_a_noisy_machine_no_ceiling_grows_by_more_than_a_tenth(case, code):
    (quiet,) = case.raised(code)
    wide = replace(case.step, low_ns=0.1 * case.ms * MS, high_ns=9 * case.ms * MS)
    (noisy,) = replaced(case, step=wide).raised(code)
    assert noisy.saving.ceiling_ns == pytest.approx(min(case.ms * MS, 1.1 * quiet.saving.ceiling_ns))


def replaced(case: Case, **fields: Any) -> Case:
    return dataclasses.replace(case, **fields)
