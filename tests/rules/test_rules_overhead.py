"""BRR301, BRR307 to BRR310 and BRR313: torch's own cost and the switches that raise it, on ledgers made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Account, DeviceLedger, OpGroup, Statement, StepStats
from gobrrr.ledger.steps.decoding import Decoding
from gobrrr.recording.model.facts import DenormalFacts, Facts, InputFacts, ModuleFacts, OptimizerFacts, Settings, Span
from gobrrr.rules.model.evidence import slowed
from gobrrr.rules.overhead.switches import _speed_up
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, machine, measured, op, product
from tests.support.rule_lines import LOOP, host, line

SWITCH = Span("train.py", 3, "<module>")
BELOW = Span("train.py", 43, "forward")


def tiny(name: str, calls: float, *shapes: tuple[int, ...], **fields: Any) -> OpGroup:
    """`calls` ops of 4 us each, of which 1 us is dispatch."""
    return op(name, *(shapes or ((8, 8),)), ms=calls * 0.004, calls=calls, floor_ns=calls * 100.0, **fields)


def recurrence(calls: float = 256, ms: float = 10.0, **fields: Any) -> Case:
    ops = (
        tiny("mm", calls),
        tiny("add", calls),
        tiny("tanh", calls, where=(BELOW,)),
        tiny("mm", calls, phase="backward"),
    )
    return Case(ops=(*ops, op("mse_loss", (8, 8), where=(OTHER_LINE,), ms=0.01)), ms=ms, **fields)


def test_a_loop_over_time_steps_is_told_at_its_busiest_line():
    (found,) = recurrence().raised("BRR301")
    assert found.where == (LINE,) and found.severity == "critical"
    assert found.evidence["calls_per_step"].value == 256
    assert "compile" in found.remedies
    # 4 x 256 ops of 4 us, less their floor of 0.1 us each.
    assert found.saving.ceiling_ns == pytest.approx(4 * 256 * 3900)


def test_the_python_of_the_loop_is_part_of_its_cost_and_its_ceiling():
    sampled = (line(4.0, LINE, phase="forward"), line(2.0, BELOW, phase="forward"), line(1.0, OTHER_LINE))
    (found,) = recurrence(extra={"lines": sampled}).raised("BRR301")
    assert found.saving.ceiling_ns == pytest.approx(6.0 * MS + 256 * 4000 - 4 * 256 * 100)
    assert found.evidence["python_time"].value == pytest.approx(6.0 * MS - 3 * 256 * 4000)


def test_a_line_beside_the_loop_that_works_is_no_part_of_it() -> None:
    """snntorch's tutorial: 50 ms in products two lines above made 17 ms of tiny ops a loop of 264."""
    header, above = (Span(LINE.file, LINE.line - before, LINE.function) for before in (1, 2))
    sampled = (line(4.0, LINE, phase="forward"), line(1.0, header, phase="forward"), line(3.0, above, phase="forward"))
    case = recurrence(extra={"lines": sampled})
    (all_three,) = case.raised("BRR301")
    case.ops += (product(1024, 1024, 1024, where=(above,)),)
    (two,) = case.raised("BRR301")
    assert all_three.saving.ceiling_ns - two.saving.ceiling_ns == pytest.approx(3.0 * MS)
    case.ops += (tiny("select", 4, where=(header,)),)
    (found,) = case.raised("BRR301")
    assert found.saving.ceiling_ns == two.saving.ceiling_ns, "a header may have a small op of its own"


def test_a_loop_holds_no_more_than_the_step():
    sampled = (line(4.0, LINE, phase="forward"), line(2.0, BELOW, phase="forward"))
    (found,) = recurrence(ms=6.0, extra={"lines": sampled}).raised("BRR301")
    assert "6.00 ms (100.0 % of the step)" in found.message and found.saving.ceiling_ns <= 6 * MS


@pytest.mark.parametrize(("updates", "told"), [(1, True), (5, False)])
def test_calls_of_several_updates_are_no_loop(updates: int, told: bool) -> None:
    """A critic that is called three times in each of its five updates was a "loop over samples"."""
    step = StepStats(count=100, kind="training", updates=((0, updates), (1, 1)))
    assert bool(recurrence(calls=64, step=step).raised("BRR301")) == told


def test_without_samples_the_profiled_host_time_stands_in_and_the_engine_is_shared():
    between = (host(2.0, LINE, phase="forward"), host(1.0, OTHER_LINE), host(0.8, OTHER_LINE, phase="backward"))
    case = recurrence(extra={"host": between})
    case.ops += (tiny("add", 256, phase="backward", where=(OTHER_LINE,)),)
    (found,) = case.raised("BRR301")
    assert found.saving.ceiling_ns == pytest.approx(4 * 256 * 3900 + 2.0 * MS + 0.4 * MS)


def test_what_the_run_cannot_resolve_widens_the_ceiling():
    step = StepStats(count=60, plain_count=50, low_ns=9.9 * MS, high_ns=10.1 * MS)
    (found,) = recurrence(step=step).raised("BRR301")
    assert found.saving.ceiling_ns == pytest.approx(4 * 256 * 3900 + 0.1 * MS)


def test_a_cat_that_grows_is_a_loop_though_no_two_calls_have_one_shape():
    growing = tuple(tiny("cat", 1, (n, 8)) for n in range(1, 129))
    assert Case(ops=growing, ms=1.0).raised("BRR301")[0].evidence["calls_per_step"].value == 128


@pytest.mark.parametrize(
    "ops",
    [
        (product(1024, 1024, 1024, calls=64.0),),  # many calls, none of them tiny
        (tiny("mm", 256, phase="optimizer"), tiny("add", 256, phase="data")),  # other rules' phases
        (tiny("view", 256), op("conv", (64, 64), ms=30)),  # the line's time is elsewhere
        (tiny("linear", 256, parents=("aten::gru",)), tiny("mm", 256, phase="backward")),  # torch's loop over time
    ],
)
def test_what_is_no_loop_of_tiny_ops_is_not_told(ops):
    assert not Case(ops=ops, ms=100).raised("BRR301")


def test_a_small_model_without_a_loop_is_a_note_that_asks_for_larger_batches():
    layers = tuple(tiny(name, 6, where=(Span("net.py", n, "forward"),)) for n in range(60) for name in ("mm", "relu"))
    (found,) = Case(ops=layers, ms=4).raised("BRR301")
    assert found.severity == "note" and "batch larger" in found.advice
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx(0.12 * 720 * 3900)
    assert not Case(ops=layers, ms=40).raised("BRR301"), "a third of the step is not overhead-bound"


def layers(
    *more: OpGroup, weights: int = 40, micro: float = 1.0, calls: float = 40, updates: int = 1, shape=(32, 64)
) -> list[str]:
    """What BRR301 says of a line with `calls` products, in a model of so many weights of their shape."""
    ops = (tiny("addmm", calls, (32,), (8, 64), (64, 32)), tiny("relu", calls, (8, 32)))
    optimizer = OptimizerFacts(id=0, shapes=((shape, weights), ((32,), weights)), micro_steps=micro)
    step = StepStats(count=60, plain_count=50, kind="training", updates=((0, updates),))
    case = Case(ops=(*ops, *more), ms=0.5, facts=Facts(optimizers=(optimizer,)), step=step)
    return [found.message for found in case.raised("BRR301") if found.where[:1] == (LINE,)]


LINEAR = ((32,), (8, 64), (64, 32))


@pytest.mark.parametrize(
    ("fields", "more", "over"),
    [
        ({}, (), "layers"),
        ({"shape": (64, 32)}, (), "layers"),
        ({"weights": 37}, (), "layers"),
        ({"weights": 20, "micro": 2.0}, (), "layers"),
        ({"weights": 20, "updates": 2}, (), "layers"),
        ({"weights": 2}, (), "samples"),
        ({"weights": 30}, (), "samples"),
        ({"weights": 1, "micro": 32.0, "calls": 32}, (), "samples"),
        ({}, (tiny("addmm", 16, *LINEAR, where=(OTHER_LINE,)),), "samples"),
        ({}, (tiny("mm", 60, (8, 8), (8, 8)),), "samples"),
        ({}, (tiny("addmm", 40, *LINEAR, recomputed=True),), "layers"),
        ({}, (tiny("add", 40, (64, 32), (64, 32), where=(OTHER_LINE,)),), "layers"),
    ],
    ids=["a weight for each", "either way round", "a step half seen", "micro-steps", "several updates", "a cell",
         "some are shared", "backward for each sample", "a cell of that shape", "another loop at the line",
         "recomputed", "no product"],
)  # fmt: skip
def test_layers_with_weights_of_their_own_are_no_loop_over_samples(
    fields: dict[str, Any], more: tuple[OpGroup, ...], over: str
) -> None:
    """Forty layers in a Sequential were a "loop over samples or time steps"."""
    (told,) = layers(*more, **fields)
    assert ("loop over layers" in told) == (over == "layers")


def test_weights_of_optimizers_that_do_not_step_are_nobodys() -> None:
    """Twenty clients in a list, each with a cell, of which one trains."""
    clients = tuple(OptimizerFacts(id=n, shapes=(((64, 64), 1),)) for n in range(20))
    step = StepStats(count=60, plain_count=50, kind="training", updates=((3, 1),))
    case = Case(ops=(tiny("mm", 20, (8, 64), (64, 64)),), ms=0.2, facts=Facts(optimizers=clients), step=step)
    assert "over layers" not in case.raised("BRR301")[0].message
    case.step = replace(step, updates=tuple((n, 1) for n in range(20)))
    assert "over layers" in case.raised("BRR301")[0].message


def test_of_a_loop_over_layers_little_is_promised() -> None:
    """Whether they lie side by side nobody knows."""
    weights = OptimizerFacts(id=0, shapes=(((64, 64), 40),))
    case = Case(ops=(tiny("mm", 40, (8, 64), (64, 64)),), ms=0.2, facts=Facts(optimizers=(weights,)))
    (found,) = case.raised("BRR301")
    assert found.severity == "note" and "bmm" in found.advice and "samples" not in found.advice
    assert (found.saving.low_ns, found.saving.expected_ns) == (0, pytest.approx(0.12 * 40 * 3900))


def test_printing_makes_tiny_ops_too_and_has_its_own_rule():
    printed = line(5.0, LINE, torch___tensor_str___str=4.9)
    assert not recurrence(extra={"lines": (printed, line(0.1, BELOW, torch___tensor_str___str=0.1))}).raised("BRR301")


def anomaly(on: bool = True, **fields: Any) -> Case:
    checks = tuple(
        tiny(name, 100, phase="backward", where=()) for name in ("isnan", "ne", "any", "item", "_local_scalar_dense")
    )
    settings = Settings(anomaly=on, anomaly_span=SWITCH)
    return Case(ops=(*checks, op("addmm", (64, 64), ms=6)), ms=10, facts=Facts(settings=settings), **fields)


def test_anomaly_mode_is_told_where_it_was_switched_on():
    stacks = line(4.0, LINE, phase="forward", torch__fx__traceback__format_stack=3.0, traceback__extract_stack=2.5)
    (found,) = anomaly(extra={"lines": (stacks,)}).raised("BRR307")
    assert found.where == (SWITCH,) and found.severity == "critical" and found.confidence == "derived"
    assert found.saving.expected_ns == pytest.approx(2.0 * MS + 3.0 * MS)
    assert found.saving.low_ns == pytest.approx(0.6 * 5.0 * MS)
    assert found.saving.ceiling_ns == pytest.approx(2.0 * MS + 1.3 * 3.0 * MS)


def test_anomaly_mode_without_samples_is_judged_by_its_ops():
    (found,) = anomaly().raised("BRR307")
    assert found.saving.expected_ns == pytest.approx(2.0 * MS)
    assert found.saving.ceiling_ns == pytest.approx(2.0 * MS + 1.2 * MS), "addmm above its floor may be stacks"


def test_anomaly_mode_off_or_unknown_is_silent():
    assert not anomaly(on=False).raised("BRR307")
    case = anomaly()
    case.facts = Facts()
    assert not case.raised("BRR307")


def deterministic(**fields: Any) -> Case:
    fills = op("fill_", (1024, 1024), ms=20, calls=10, parents=("aten::linear", "aten::empty"))
    own = op("fill_", (1024, 1024), ms=30, parents=("aten::zero_",))
    settings = Settings(**{"deterministic": True, "deterministic_span": SWITCH, **fields})
    return Case(ops=(fills, own), facts=Facts(settings=settings))


def test_deterministic_fills_of_fresh_memory_are_told_and_the_programs_own_are_not():
    (found,) = deterministic().raised("BRR308")
    assert found.where == (SWITCH,)
    assert found.saving.ceiling_ns == pytest.approx(20 * MS) and found.saving.expected_ns == pytest.approx(18 * MS)


def test_deterministic_mode_off_is_silent():
    assert not deterministic(deterministic=None).raised("BRR308")


def test_a_profiler_that_is_left_on_costs_per_op():
    case = Case(ops=(tiny("mm", 1000),), ms=20, facts=Facts(settings=Settings(profiler_on=True)))
    case.extra["lines"] = (line(3.0, LOOP, torch__autograd__profiler__profile____exit__=2.0),)
    (found,) = case.raised("BRR308")
    assert found.saving.expected_ns == pytest.approx(1.5 * MS + 2.0 * MS) and found.where == (LOOP,)
    assert found.confidence == "inferred"
    case.facts = Facts(settings=Settings(profiler_on=False))
    assert not case.raised("BRR308")


def threads(count: int, **facts: Any) -> Case:
    settings = Settings(threads=count, threads_span=SWITCH)
    return Case(ops=(product(2048, 2048, 2048, gflops=90),), ms=200, facts=Facts(settings=settings, **facts))


def test_too_few_threads_gain_what_the_ceilings_say():
    (found,) = threads(1).raised("BRR309")
    product_ns = threads(1).ops[0].ns
    assert found.where == (SWITCH,)
    assert found.saving.expected_ns == pytest.approx(0.7 * 0.5 * product_ns)
    assert found.saving.ceiling_ns == pytest.approx(0.5 * product_ns)


def test_one_thread_is_right_where_cores_are_busy_or_missing():
    assert not threads(1, process_load=1.9).raised("BRR309")
    single = threads(1)
    single.machine = replace(machine(), effective_cores=measured(1.2, "1"))
    assert not single.raised("BRR309")
    assert not threads(2).raised("BRR309")


def crowded(count: int, others: float, **facts: Any) -> Case:
    """Four effective cores, `others` of them in the hands of strangers."""
    case = threads(count, other_load=others, **facts)
    case.machine = replace(machine(), effective_cores=measured(4, "1"), logical_cores=4, threads=4)
    return case


def test_cores_that_others_hold_are_no_cores_for_more_threads():
    assert crowded(1, 0.0).raised("BRR309")
    assert not crowded(1, 3.5).raised("BRR309"), "half a core is left"
    (found,) = crowded(1, 2.0).raised("BRR309")
    assert found.saving.ceiling_ns == pytest.approx(0.5 * crowded(1, 2.0).ops[0].ns), "from one thread to two: a half"
    assert "set 2" in found.advice and "1 of 2.0 cores that other processes left it" in found.message


def test_more_threads_for_threads_that_get_no_core_are_a_note_that_promises_nothing():
    (found,) = crowded(1, 2.0, process_load=0.8, waiting_load=0.3).raised("BRR309")
    assert found.severity == "note" and found.saving.low_ns == 0 < found.saving.expected_ns
    (found,) = crowded(1, 2.0, process_load=0.8, waiting_load=0.01).raised("BRR309")
    assert found.severity == "critical" and found.saving.low_ns > 0


def test_work_that_does_not_divide_gains_nothing_from_threads():
    tiny_step = Case(ops=(tiny("mm", 1000),), ms=5, facts=Facts(settings=Settings(threads=1)))
    assert not tiny_step.raised("BRR309")


def test_too_many_threads_wait_for_each_other():
    case = threads(16)
    (found,) = case.raised("BRR309")
    lost = case.ops[0].ns - case.ops[0].floor_ns
    assert found.saving.expected_ns == pytest.approx(min(lost, 3 * 0.13 * case.ops[0].ns))
    assert found.saving.ceiling_ns == pytest.approx(lost) and "set_num_threads(2)" in found.advice


def test_torchs_own_default_is_not_the_users_fault_unless_a_quota_says_so():
    case = threads(16)
    case.machine = replace(machine(), threads=16, effective_cores=measured(8, "1"))
    assert not case.raised("BRR309")
    case.machine = replace(machine(), threads=16, quota=2.0)
    assert case.raised("BRR309")


def subnormal(share: float = 0.3, flushed: bool | None = None, times: float = 20, **fields: Any) -> Case:
    slow = op("mul", (1024, 1024), ms=40, floor_ns=40 * MS / times, where=(OTHER_LINE,))
    seen = (DenormalFacts("state", share, **fields), DenormalFacts("input", 0.0, LINE))
    return Case(
        ops=(slow, product(512, 512, 512)), facts=Facts(settings=Settings(flush_denormal=flushed), denormals=seen)
    )


def test_denormals_with_slow_ops_are_told_at_the_costliest_of_them():
    (found,) = subnormal().raised("BRR310")
    # All but half of its floor, and what the product beside it may lose.
    assert found.where == (OTHER_LINE,) and 38 * MS <= found.saving.ceiling_ns <= 40 * MS
    nowhere = subnormal(span=SWITCH)
    nowhere.ops = tuple(replace(each, where=()) for each in nowhere.ops)
    assert nowhere.raised("BRR310")[0].where == (SWITCH,)


def test_denormals_that_slow_nothing_or_are_few_or_flushed_are_not_told():
    assert not subnormal(times=2).raised("BRR310"), "this processor does not mind them"
    assert not subnormal(share=0.001).raised("BRR310")
    assert not subnormal(flushed=True).raised("BRR310")
    crowd = subnormal()
    crowd.facts = replace(crowd.facts, other_load=1.2)
    assert not crowd.raised("BRR310"), "every op is slow where strangers have the cores"
    case = subnormal()
    case.facts = Facts()
    assert not case.raised("BRR310")


def test_denormals_are_held_against_the_ops_that_touch_them():
    case = subnormal()
    given = InputFacts((4, 256, 1024), span=LINE)
    case.facts = replace(case.facts, denormals=(DenormalFacts("input", 0.3, LINE),), inputs=(given,))
    assert case.raised("BRR310"), "1024 x 1024 is that input, flattened"
    case.facts = replace(case.facts, inputs=(InputFacts((64, 1024), span=LINE),))
    assert not case.raised("BRR310")
    case.facts = replace(case.facts, denormals=(DenormalFacts("activation", 0.3, OTHER_LINE),))
    assert case.raised("BRR310")
    case.facts = replace(case.facts, denormals=(DenormalFacts("activation", 0.3, SWITCH),))
    assert not case.raised("BRR310")


@pytest.mark.parametrize(("drift", "told"), [(0.6, True), (0.0, False)])
def test_momenta_that_decayed_are_told_by_what_the_step_has_grown(drift: float, told: bool):
    update = op("mul_", (64, 64), ms=1, floor_ns=1e6, phase="optimizer", where=(OTHER_LINE,))
    seen = DenormalFacts("optimizer's momentum_buffer", 0.3, None)
    case = Case(ops=(update, product(512, 512, 512)), facts=Facts(denormals=(seen,)))
    case.step = replace(case.ledger.step, drift=drift, count=60)
    found = case.raised("BRR310")
    assert [each.where for each in found] == ([(OTHER_LINE,)] if told else [])


def test_a_switch_that_is_nobodys_line_is_shown_at_the_loop():
    case = anomaly()
    loop = (OptimizerFacts(0, span=LOOP),)
    case.facts = Facts(settings=Settings(anomaly=True), optimizers=loop)
    assert case.raised("BRR307")[0].where == (LOOP,)


def test_a_body_that_does_nothing_else_is_told_at_the_line_that_repeats_it():
    body, called, once = Span("net.py", 9, "Cell.forward"), Span("train.py", 28, "step"), Span("train.py", 29, "step")
    loss = op("nll_loss", (8, 8), ms=0.01, where=(once, LOOP))
    case = Case(
        ops=(tiny("mm", 128, where=(body, called, LOOP)), tiny("add", 128, where=(body, called, LOOP)), loss), ms=4
    )
    assert case.raised("BRR301")[0].where == (called, LOOP)
    inside = op("zeros", (8, 8), ms=0.01, where=(Span("net.py", 7, "Cell.forward"), called, LOOP))
    case.ops += (inside,)
    assert case.raised("BRR301")[0].where[0] == body, "the body runs once per step: the loop is in it"


def test_ops_that_are_worth_less_than_their_dispatch_are_tiny_whatever_they_took():
    contended = tuple(op(n, (8, 8), ms=10, calls=128.0, floor_ns=128 * 100.0) for n in ("mm", "add"))
    assert Case(ops=contended, ms=25).raised("BRR301")
    assert not Case(ops=tuple(replace(o, bound=None) for o in contended), ms=25).raised("BRR301"), "work unknown"


READS_WEIGHTS = op("mm", (1, 512), (512, 512), ms=35, floor_ns=5 * MS, bound="bandwidth")
"""30 ms above its floor, which is nearly all for the weights."""


def one_by_one(
    *shapes: tuple[int, ...], count: int = 200, kind: str = "inference", ops: tuple[OpGroup, ...] = (READS_WEIGHTS,),
    turned: bool = False, faults: float = 0.0,
) -> Case:  # fmt: skip
    """A step of 100 ms: 10 of dispatch, 20 of Python, `ops`."""
    accounts = {"dispatch": 10, "host": 20}
    step = StepStats(kind=kind, count=count, plain_count=count)
    facts = Facts(
        inputs=tuple(InputFacts(shape, turned=turned) for shape in shapes),
        modules=(ModuleFacts(1, calls_per_step=1, span=LINE),),
        minor_faults_per_step=faults,
    )
    named = tuple(Account(name, ms * MS, ms / 100) for name, ms in accounts.items())
    return Case(ops=ops, step=step, facts=facts, accounts=named)


def test_one_sample_per_call_is_told_at_the_call():
    (found,) = one_by_one((1, 24), (1, 24), (24,)).raised("BRR313")
    assert found.where == (LINE,)
    assert found.saving.low_ns == pytest.approx(0.3 * 35 * MS, rel=0.01)
    assert found.saving.expected_ns == pytest.approx((0.7 * 35 + 0.3 * 30) * MS, rel=0.01)
    assert found.saving.ceiling_ns == pytest.approx(65 * MS, rel=0.01)


def test_edits_of_generate_are_named_where_it_is_called():
    case = one_by_one((1, 1))
    assert case.raised("BRR313")[0].remedies == ()
    case.extra = {"decoding": Decoding(20, 1.0, 640, 60.0, None, None, None, None)}
    assert case.raised("BRR313")[0].remedies == ("batched_prompts", "int8_draft", "prompt_lookup")
    case.extra["device"] = DeviceLedger("gpu", 60 * MS, 40 * MS, 0.7)
    assert case.raised("BRR313")[0].remedies == ("batched_prompts", "prompt_lookup")


@pytest.mark.parametrize(
    "grows",
    [
        op("add", (1, 16, 768, 768), ms=60, floor_ns=20 * MS, bound="bandwidth"),
        op("mkldnn_convolution", (1, 3, 768, 768), (16, 3, 3, 3), ms=60, floor_ns=20 * MS, bound="compute"),
        op("mm", (4096, 64), (64, 64), ms=60, floor_ns=20 * MS, bound="bandwidth"),
        op("mm", (64, 512), (512, 512), ms=60, floor_ns=20 * MS, bound="compute"),
        op("bmm", (8, 1, 64), (8, 64, 512), ms=60, floor_ns=20 * MS, bound="bandwidth"),  # each sample has its own
    ],
    ids=lambda each: each.name,
)
def test_what_grows_with_the_batch_does_not_come_back(grows):
    (found,) = one_by_one((1, 3, 768, 768), ops=(grows,)).raised("BRR313")
    assert found.saving.ceiling_ns == pytest.approx(30 * MS, rel=0.01), "dispatch and Python"


def test_small_ops_take_hardly_longer_for_many():
    less = op("gelu", (1, 24, 64), ms=10, calls=100, floor_ns=0.05 * MS)
    unknown = replace(less, bound=None)
    ceilings = [one_by_one((1, 24), ops=(each,)).raised("BRR313")[0].saving.ceiling_ns for each in (less, unknown)]
    assert ceilings == [pytest.approx(39.95 * MS), pytest.approx(30 * MS)]


def test_pages_that_are_given_back_between_ops_are_no_pythons():
    """1 us each: 15 of the 20 ms between ops."""
    (found,) = one_by_one((1, 24), ops=(), faults=15_000).raised("BRR313")
    assert found.evidence["per_call"].value == 15 * MS


def test_a_length_in_the_first_place_is_no_batch():
    """nn.GRU(64, 256) of one time step and 256 samples."""
    assert not one_by_one((1, 256, 64), turned=True).raised("BRR313")
    assert one_by_one((1, 1, 64), turned=True).raised("BRR313")


def test_batches_training_and_few_samples_are_not_one_sample_per_call():
    assert not one_by_one((8, 24)).raised("BRR313")
    assert not one_by_one((1, 24), (8, 24)).raised("BRR313"), "a part of the input is one of its kind"
    assert not one_by_one((24,)).raised("BRR313"), "a vector may be anything"
    assert not one_by_one((1, 24), kind="training").raised("BRR313")
    assert not one_by_one((1, 24), count=5).raised("BRR313")


def test_a_step_of_no_length_was_slowed_by_nothing():
    case = Case(ms=0)
    case.step = StepStats(wall_ns=5 * MS, profiled_count=4)
    assert slowed(case.ledger) == 0.0


def test_an_op_whose_ceiling_is_not_known_on_all_threads_gains_nothing():
    whole = machine()
    partly = replace(whole, matmul={"1": whole.matmul["1"]}, copy=())
    mm, copied = product(512, 512, 512), op("mul", (1 << 20,), ms=1, bound="bandwidth", bytes=8e6)
    assert _speed_up(mm, whole, 1) == 2.0 and _speed_up(mm, partly, 1) == _speed_up(copied, partly, 1) == 1.0


def checked(made: float = 6.0, asked: float = 4.0, checks: float = 40.0, **fields: Any) -> Case:
    """A policy whose line makes distributions for `made` ms and asks them for `asked` ms, checks included."""
    base = "torch.distributions.distribution.Distribution."
    made_at = replace(line(2 * made, LINE, phase="forward"), libraries=((base + "__init__", made * MS),))
    asked_at = replace(line(2 * asked, BELOW), libraries=((base + "_validate_sample", asked * MS),))
    ops = (tiny("_is_all_true", checks),) if checks else (tiny("add", 40),)
    return Case(ops=ops, extra={"lines": tuple(each for each in (made_at, asked_at) if each.ns)}, **fields)


def test_distributions_that_check_their_arguments_are_told_where_most_of_it_is():
    (found,) = checked().raised("BRR316")
    assert found.where == (LINE,) and "40 times per step: 10.0 ms (10.0 %)" in found.message
    assert found.saving.expected_ns == pytest.approx(0.9 * 10 * MS), "made and asked do not nest: they add up"
    assert found.saving.ceiling_ns == pytest.approx(1.1 * 10 * MS)
    assert found.remedies == ("unchecked_distributions",)


def test_checks_of_long_steps_alone_are_of_the_mean_step():
    case = checked(step=StepStats(count=100, plain_count=50, mean_ns=300 * MS))
    made, asked = case.extra["lines"]
    case.extra = {"lines": (replace(made, usual_share=0.1), replace(asked, usual_share=0.9))}
    (found,) = case.raised("BRR316")
    assert found.rare and "in some steps: 22.0 ms (7.3 %) per step, on average" in found.message  # 3 times 6, and 4
    case.extra = {"lines": (replace(made, usual_share=0.9), replace(asked, usual_share=0.9))}
    (found,) = case.raised("BRR316")
    assert not found.rare and "40 times per step: 10.0 ms (10.0 %) per step" in found.message


def test_distributions_without_checks_or_cheap_ones_are_silent():
    assert not checked(checks=0).raised("BRR316"), "what __init__ does beside its checks is no illness"
    assert not checked(made=0.2, asked=0.1).raised("BRR316")
    assert checked(made=0.0, asked=4.0).raised("BRR316")[0].where == (BELOW,)


LOOP_OF_STEPS = "for step in range(100)"


@pytest.mark.parametrize(("text", "around", "advice"), [
    ("y = self.net(row)", ("for row in x",), "ops on the whole batch"),
    ("ys = torch.stack([self.net(row) for row in x])", (), "ops on the whole batch"),
    ("total = total + self.net(row)", ("for row in x",), "ops on the whole batch"),
    ("h = self.cell(x[t], h)", ("for t in range(9)",), "needs the one before"),
    ("h, c = self.cell(x[t], (h, c))", ("while t < 9",), "needs the one before"),
    ("y = self.table(x)", (), "No loop of the program's"),
    ("y = self.table(x)", ("with torch.no_grad()", LOOP_OF_STEPS), "No loop of the program's"),
])  # fmt: skip
def test_the_advice_knows_whose_loop_it_is_and_whether_its_turns_wait_for_each_other(text, around, advice):
    made = recurrence()
    (plain,) = made.raised("BRR301")
    update = Span("train.py", 500, "<module>")
    facts = replace(made.facts, optimizers=(OptimizerFacts(0, span=update),))
    statements = tuple(Statement(span, text, around) for span in plain.where)
    steps = Statement(update, "optimizer.step()", (LOOP_OF_STEPS,))
    case = dataclasses.replace(made, facts=facts, extra=made.extra | {"statements": (*statements, steps)})
    (found,) = case.raised("BRR301")
    assert advice in found.advice and "ops on the whole batch" in plain.advice
    assert found.saving.expected_ns <= plain.saving.expected_ns


LONGER = StepStats(count=900, plain_count=800, kind="training", drift=1.0)
HOOKED = ModuleFacts(id=0, kind="Net", num_params=1000, hooks=80, hooks_per_step=0.1, span=LINE)


@pytest.mark.parametrize(
    ("module", "step", "told"),
    [(HOOKED, LONGER, True), (replace(HOOKED, hooks_per_step=0.0), LONGER, False),
     (replace(HOOKED, hooks_per_step=0.0005), LONGER, False), (HOOKED, replace(LONGER, drift=0.05), False),
     (HOOKED, replace(LONGER, count=12), False)],
)  # fmt: skip
def test_hooks_that_join_with_each_step_are_told_where_steps_lengthen(module, step, told):
    case = Case(facts=Facts(modules=(module,)), step=step)
    found = case.raised("BRR317")
    assert bool(found) == told
    if told:
        grown = 0.75 * 1.0 / 1.5 * 100 * MS  # drift 1: first and last third lie two thirds of the growth apart
        assert found[0].saving.expected_ns == pytest.approx(grown) and "100 more hooks" in found[0].message


def test_hooks_are_told_where_they_are_registered():
    places = {"net.layer.register_forward_hook(keep)": 12, "out = net(x)": LINE.line}
    registers = Statement(LINE, "out = net(x)", places=places)
    case = Case(facts=Facts(modules=(HOOKED,)), step=LONGER, extra={"statements": (registers,)})
    [found] = case.raised("BRR317")
    assert [span.line for span in found.where] == [12, LINE.line]
