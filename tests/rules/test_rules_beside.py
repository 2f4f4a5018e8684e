"""BRR311 and BRR312: lines that have no part in training are named, those that have are not."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import HostGroup, Ledger, LineGroup, OpGroup, OtherLoop, StepStats
from gobrrr.recording.model.facts import Facts, ModuleFacts, Span
from gobrrr.rules import judge, unknown_only
from gobrrr.rules.model.finding import Finding, Saving
from tests.support.handmade import ALL_SIGNALS, MS, Case, op

MAIN = Span("train.py", 90, "<module>")
FORWARD, LOSS, METRIC, EVALUATE = (Span("train.py", line, "main") for line in (20, 21, 27, 40))
INSIDE = Span("model.py", 7, "forward")
MODEL = ModuleFacts(id=0, kind="Net", num_params=100, trainable_params=100, calls_per_step=2.0, span=FORWARD)


def training(*more: OpGroup | HostGroup, **fields: object) -> Case:
    """A step of 100 ms: forward and backward of one model, and what more there is."""
    ops = (
        op("addmm", (8, 8), ms=20, where=(INSIDE, FORWARD, MAIN)),
        op("mm", (8, 8), ms=40, where=(INSIDE, FORWARD, MAIN), phase="backward"),
        op("nll_loss", (8, 8), ms=2, where=(LOSS, MAIN), phase="loss"),
        op("nll_loss_backward", (8, 8), ms=2, where=(LOSS, MAIN), phase="backward"),
        *(group for group in more if isinstance(group, OpGroup)),
    )
    host = tuple(group for group in more if isinstance(group, HostGroup))
    facts = fields.pop("facts", Facts(modules=(MODEL,)))
    return Case(
        ops=ops, facts=facts, signals=ALL_SIGNALS - {"device", "samples"}, extra={"host": host, **fields},
        step=StepStats(count=60, plain_count=50, kind="training", mean_ns=100 * MS),
    )  # fmt: skip


def test_training_alone_is_silent():
    assert not training().raised("BRR311") and not training().raised("BRR312")


@pytest.mark.parametrize(("ms", "raised"), [(9, False), (11, True)])
def test_a_tenth_of_the_step_beside_training_is_named_with_all_that_it_calls(ms, raised):
    below = Span("metrics.py", 3, "score")
    case = training(
        op("sort", (8, 8), ms=ms - 5, phase="other", where=(below, METRIC, MAIN)),
        HostGroup((below, METRIC, MAIN), 5 * MS, "other"),
    )
    found = case.raised("BRR311")
    assert bool(found) == raised
    if found:
        assert found[0].where[0] == METRIC and found[0].evidence["in_modules"].value == 0
        assert found[0].saving.ceiling_ns == pytest.approx(11 * MS)
        assert sum(ns for _, ns in found[0].lies) == pytest.approx(11 * MS)


def test_what_the_host_of_a_file_does_beside_its_device_is_not_asked():
    case = training(op("sort", (8, 8), ms=11, phase="other", where=(METRIC, MAIN)))
    case.signals |= {"offline"}
    assert not case.raised("BRR311")


def test_a_device_that_idles_while_the_host_is_in_ops_is_bound_by_overhead():
    """A metric of 180 small kernels: 2 ms of them, 7 of the device's idle time in ops, 3 in Python."""
    at = {"phase": "other", "where": (METRIC, MAIN)}
    kernels = op("sort", (8, 8), ms=2, **at)
    case = training(op("sort", (8, 8), ms=7, **at), HostGroup((METRIC, MAIN), 3 * MS, "other"))
    case.extra |= {"device": DeviceLedger("gpu", 60 * MS, 40 * MS, 0.7), "device_ops": (kernels,)}
    (found,) = case.raised("BRR311")
    assert found.bound == "overhead" and found.saving.ceiling_ns == pytest.approx(12 * MS)


@pytest.mark.parametrize(("with_device", "bound"), [(False, "compute"), (True, "compute")])
def test_what_works_beside_training_is_bound_by_its_work(with_device, bound):
    """On a CPU an op's time is its own; on a device that of its kernels is no wait for the host."""
    work = op("mm", (8, 8), ms=20, bound="compute", phase="other", where=(METRIC, MAIN), dispatch_ns=1.0)
    case = training(work)
    if with_device:
        host = (op("mm", (8, 8), ms=3, phase="other", where=(METRIC, MAIN)), *training().ops)
        case = training()
        case.ops = host
        case.extra |= {"device": DeviceLedger("gpu", 90 * MS, 10 * MS, 0.7), "device_ops": (work,)}
    (found,) = case.raised("BRR311")
    assert found.bound == bound


def test_any_line_may_be_the_update_where_no_optimizer_makes_it():
    by_hand = training(op("div", (8, 8), ms=30, phase="other", where=(METRIC, MAIN)))
    assert by_hand.raised("BRR311")
    assert not dataclasses.replace(by_hand, step=replace(by_hand.step, loop="5:0")).raised("BRR311")


def test_neighbouring_lines_are_one():
    near = Span("train.py", 29, "main")
    case = training(*(HostGroup((line, MAIN), 7 * MS, "other") for line in (METRIC, near)))
    (found,) = case.raised("BRR311")
    assert found.saving.ceiling_ns == pytest.approx(14 * MS) and "lines 27 to 29 and what they call" in found.message
    assert found.bound == "host"


def test_what_is_sampled_in_plain_steps_counts():
    line = LineGroup((METRIC, MAIN), 12 * MS, "other")
    (found,) = training(HostGroup((METRIC, MAIN), 30 * MS, "other"), lines=(line,)).raised("BRR311")
    assert found.saving.ceiling_ns == pytest.approx(12 * MS)


@pytest.mark.parametrize("evaluates", [False, True])
def test_what_only_long_steps_do_is_of_the_mean_step(evaluates):
    """Rollouts before every third update: the median step of 100 ms has none of them, the mean one of 250 has 120."""
    phase, code = ("forward", "BRR312") if evaluates else ("other", "BRR311")
    rollout = op("addmm", (8, 8), ms=40, phase=phase, where=(INSIDE, EVALUATE, MAIN))
    line = LineGroup((INSIDE, EVALUATE, MAIN), 48 * MS, phase, usual_share=0.1)
    for share, rare in ((0.1, True), (0.9, False)):
        case = training(rollout, lines=(replace(line, usual_share=share),))
        case.step = replace(case.step, mean_ns=250 * MS)
        (found,) = case.raised(code)
        assert found.rare == rare and found.saving.ceiling_ns == (120 if rare else 48) * MS
        assert ("120 ms (48.0 %" in found.message and "of the mean step" in found.message) == rare


def test_the_models_own_lines_are_training_though_some_get_no_gradient():
    frozen = Span("model.py", 9, "forward")
    case = training(op("conv2d", (8, 8), ms=30, where=(frozen, FORWARD, MAIN)))
    assert not case.raised("BRR311") and not case.raised("BRR312")


@pytest.mark.parametrize(("calls", "grad", "raised"), [(1.0, True, False), (2.0, True, True), (1.0, False, True)])
def test_the_forward_behind_a_frozen_trunk_is_the_training(calls: float, grad: bool, raised: bool) -> None:
    """A linear head of ten classes: its gradients are 1 % of the forward, and all of it was told as an evaluation."""
    head = replace(MODEL, trainable_params=10, calls_per_step=calls, grad_enabled=grad)
    ops = (op("addmm", (8, 8), ms=94, where=(INSIDE, FORWARD, MAIN)),
           op("mm", (8, 8), ms=1, where=(INSIDE, FORWARD, MAIN), phase="backward"))  # fmt: skip
    case = dataclasses.replace(training(facts=Facts(modules=(head,))), ops=ops)
    case.step = replace(case.step, backwards=1)
    assert bool(case.raised("BRR312") or case.raised("BRR311")) == raised


@pytest.mark.parametrize("line", [METRIC, EVALUATE])
def test_a_metric_beside_a_frozen_trunk_is_still_told(line: Span) -> None:
    head = replace(MODEL, trainable_params=10, calls_per_step=1.0)
    ops = (op("addmm", (8, 8), ms=45, where=(INSIDE, FORWARD, MAIN)),
           op("mm", (8, 8), ms=0.5, where=(INSIDE, FORWARD, MAIN), phase="backward"),
           op("sort", (8, 8), ms=50, phase="other", where=(line, MAIN)))  # fmt: skip
    case = dataclasses.replace(training(facts=Facts(modules=(head,))), ops=ops)
    case.step = replace(case.step, backwards=1)
    (found,) = case.raised("BRR311")
    assert found.where[0] == line and found.saving.ceiling_ns == pytest.approx(50 * MS)
    trunk = ModuleFacts(id=1, kind="Trunk", num_params=900, calls_per_step=1.0, span=FORWARD)
    both = dataclasses.replace(case, facts=Facts(modules=(trunk, head)))
    assert [f.where[0] for f in both.raised("BRR311")] == [line] and not both.raised("BRR312")
    elsewhere = replace(head, id=2, kind="Other", span=LOSS)
    two = dataclasses.replace(case, facts=Facts(modules=(head, elsewhere)))
    assert MAIN in [f.where[0] for f in two.raised("BRR311")], "a model that trains at a line of its own"


def test_a_layer_that_gets_no_gradient_is_part_of_the_forward():
    """One that normalises pixels, in a line that computes the loss as well, was told as an evaluation."""
    both = Span("train.py", 22, "main")
    layer = Span("model.py", 30, "Normalise.forward")
    groups = [op("div", (8, 8), ms=15, where=(layer, both, MAIN)),
              op("addmm", (8, 8), ms=20, where=(INSIDE, both, MAIN)),
              op("mm", (8, 8), ms=30, where=(INSIDE, both, MAIN), phase="backward"),
              op("nll_loss", (8, 8), ms=5, where=(both, MAIN), phase="loss")]  # fmt: skip
    case = training(*groups)
    assert not case.raised("BRR311") and not case.raised("BRR312")
    evaluate = Span("train.py", 60, "evaluate")
    groups[0] = op("addmm", (8, 8), ms=15, where=(INSIDE, evaluate, both, MAIN))
    assert training(*groups).raised("BRR312"), "a function that the line calls as well"


def test_a_forward_is_a_layer_only_below_one_that_trains():
    """By itself it is a second model, or an evaluation; and what is not all forward is the program's own."""
    below = Span("model.py", 30, "Teacher.forward")
    case = training(op("addmm", (8, 8), ms=30, where=(below, EVALUATE, MAIN)))
    assert case.raised("BRR312"), "its caller trains nothing"
    both = Span("train.py", 22, "main")
    groups = [op("addmm", (8, 8), ms=20, where=(INSIDE, both, MAIN)),
              op("mm", (8, 8), ms=30, where=(INSIDE, both, MAIN), phase="backward"),
              op("nll_loss", (8, 8), ms=5, where=(both, MAIN), phase="loss"),
              HostGroup((below, both, MAIN), 15 * MS, "other")]  # fmt: skip
    assert training(*groups).raised("BRR311"), "a method called forward that is no module's"


def test_a_transform_without_weights_is_no_evaluation():
    augment = ModuleFacts(id=1, kind="Augment", calls_per_step=1.0, span=EVALUATE)
    case = training(op("mul", (8, 8), ms=30, where=(EVALUATE, MAIN)), facts=Facts(modules=(MODEL, augment)))
    (found,) = case.raised("BRR311")
    assert found.where[0] == EVALUATE and not case.raised("BRR312")


def test_evaluation_at_the_models_own_line_is_one():
    """The line of the call is known here: it is the model with weights that runs there."""
    case = training(op("addmm", (8, 8), ms=30, where=(INSIDE, EVALUATE, MAIN)),
                    facts=Facts(modules=(replace(MODEL, span=EVALUATE),)))  # fmt: skip
    assert case.raised("BRR312") and not case.raised("BRR311")


def test_clipping_is_part_of_the_update():
    assert not training(op("_foreach_norm", (8,), ms=30, phase="other", where=(METRIC, MAIN))).raised("BRR311")


@pytest.mark.parametrize("phase", ["optimizer", "data"])
def test_updates_and_the_loader_have_their_own_rules(phase):
    assert not training(op("add_", (8,), ms=30, phase=phase, where=(METRIC, MAIN))).raised("BRR311")


def test_evaluation_in_every_step_is_called_that():
    case = training(op("addmm", (8, 8), ms=30, where=(INSIDE, EVALUATE, MAIN)))
    (found,) = case.raised("BRR312")
    assert found.where[0] == EVALUATE and not case.raised("BRR311")


def test_a_second_model_is_no_evaluation():
    teacher = ModuleFacts(id=1, kind="Teacher", num_params=900, trainable_params=900, calls_per_step=1.0, span=EVALUATE)
    case = training(op("addmm", (8, 8), ms=30, where=(INSIDE, EVALUATE, MAIN)), facts=Facts(modules=(MODEL, teacher)))
    (found,) = case.raised("BRR311")
    assert found.where[0] == EVALUATE and "get no gradient" in found.message and not case.raised("BRR312")
    assert 0.5 < found.evidence["in_modules"].value <= 1


def test_a_frozen_model_that_makes_the_targets_is_no_evaluation():
    """fast_neural_style: VGG on what came out, with gradients, and on the content, without."""
    vgg = ModuleFacts(id=1, kind="Vgg16", num_params=900, trainable_params=0, calls_per_step=2.0, span=LOSS)
    case = training(op("addmm", (8, 8), ms=30, where=(INSIDE, EVALUATE, MAIN)), facts=Facts(modules=(MODEL, vgg)))
    (found,) = case.raised("BRR311")
    assert found.saving.low_ns == 0 and not case.raised("BRR312")


def loops(share: float, **fields: object) -> Case:
    loop = OtherLoop("forwards of Net", share, 1600, between=share)
    return training(loops=(loop,), facts=Facts(modules=(MODEL,), eval_span=EVALUATE), **fields)


@pytest.mark.parametrize(("share", "raised"), [(0.15, False), (0.4, True)])
def test_evaluation_between_steps_is_told_by_its_share_of_the_time(share, raised):
    found = loops(share).raised("BRR312")
    assert bool(found) == raised
    assert not found or (found[0].where == (EVALUATE,) and found[0].confidence == "inferred" and found[0].between)
    assert not found or found[0].evidence["per_update"].value == pytest.approx(0.4 / 0.6 * 100 * MS)


def test_a_checkpoint_after_an_evaluation_is_not_taken_for_it():
    slow = OtherLoop("forwards of Net", 0.6, 1600, between=0.6, where=LOSS, after=0.55)
    case = training(loops=(slow,), facts=Facts(modules=(MODEL,)))
    (found,) = case.raised("BRR311")
    assert found.where == (LOSS,) and found.between and not case.raised("BRR312")
    assert found.saving.ceiling_ns == pytest.approx(0.55 / 0.4 * 100 * MS) and found.saving.low_ns == 0
    on_device = training(
        loops=(slow,), facts=Facts(modules=(MODEL,)), device=DeviceLedger("gpu", 60 * MS, 40 * MS, 0.7)
    )
    assert not on_device.raised("BRR311"), "what its forwards asked of the device may be waited for there"
    (evaluated,) = training(loops=(replace(slow, after=0.3),), facts=Facts(modules=(MODEL,))).raised("BRR312")
    assert evaluated.evidence["per_update"].value == pytest.approx(0.3 / 0.4 * 100 * MS)


def test_histograms_before_an_evaluation_are_not_taken_for_it():
    slow = OtherLoop("forwards of Net", 0.6, 1600, between=0.6, where=LOSS, before=0.35)
    case = training(loops=(slow,), facts=Facts(modules=(MODEL,)))
    (found,), (evaluated,) = case.raised("BRR311"), case.raised("BRR312")
    assert found.saving.ceiling_ns == pytest.approx(0.35 / 0.4 * 100 * MS) and found.between
    assert "between an update and the first forward without one" in found.message
    assert evaluated.saving.ceiling_ns == pytest.approx(0.25 / 0.4 * 100 * MS)


def test_what_makes_the_forwards_is_named_before_the_line_that_calls_eval():
    often = OtherLoop("forwards of Net", 0.4, 1600, between=0.4, where=MAIN)
    other = OtherLoop("forwards of Part", 0.1, 1600, between=0.1, where=LOSS)
    (found,) = training(loops=(other, often), facts=Facts(modules=(MODEL,), eval_span=EVALUATE)).raised("BRR312")
    assert found.where == (MAIN,)


def test_a_prediction_after_the_last_step_is_no_load_on_the_steps():
    apart = OtherLoop("forwards of Net", 0.4, 1600, apart=True)
    beside = OtherLoop("forwards of Part", 0.3, 800, between=0.3)
    assert not training(loops=(apart,), facts=Facts(modules=(MODEL,))).raised("BRR312")
    (found,) = training(loops=(apart, beside), facts=Facts(modules=(MODEL,))).raised("BRR312")
    assert "forwards of Part" in found.message and found.evidence["per_update"].value == pytest.approx(100 * MS)
    both = OtherLoop("forwards of Net", 0.6, 1600, between=0.3)  # responses are generated after the last update, too
    (found,) = training(loops=(both,), facts=Facts(modules=(MODEL,))).raised("BRR312")
    assert found.evidence["per_update"].value == pytest.approx(0.3 / 0.4 * 100 * MS)


def test_what_lies_between_steps_may_take_longer_than_a_step():
    """Rollouts of 27 ms beside updates of 8: the mean step has both."""
    (found,) = loops(0.75).raised("BRR312")
    assert found.evidence["per_update"].value == pytest.approx(300 * MS) == pytest.approx(found.saving.ceiling_ns)
    assert found.saving.expected_ns == pytest.approx(150 * MS) and found.saving.low_ns == 0


@pytest.mark.parametrize(("waits", "told"), [(0.0, False), (0.05, False), (0.6, True)])
def test_what_an_evaluation_waits_for_its_loader_is_not_told_as_forwards(waits, told):
    case = training(loops=(OtherLoop("forwards of Net", 0.5, 1600, waits, between=0.5),), facts=Facts(modules=(MODEL,)))
    (found,) = case.raised("BRR312")
    assert found.evidence["waiting_for_its_loader"].value == pytest.approx(waits * 100 * MS)
    assert ("waiting for data" in found.message) == told == ("num_workers" in found.advice)


def test_a_step_of_forwards_is_no_evaluation_of_itself():
    case = loops(0.4)
    case.step = StepStats(count=60, plain_count=50, kind="inference", mean_ns=100 * MS)
    assert not case.raised("BRR312")


def test_what_another_rule_explains_is_not_blamed_as_well():
    def found(code: str, ms: float, *where: Span) -> Finding:
        return Finding(code, "name", "host", "warning", Saving(0, ms * MS, ms * MS), "message", where=where)

    blamed = found("BRR311", 20, METRIC, MAIN)
    below = found("BRR302", 15, Span("metrics.py", 3), METRIC, MAIN)
    assert unknown_only([blamed, below]) == [below]
    assert unknown_only([blamed, found("BRR302", 5, METRIC)])[0] == blamed, "less than half of it"
    assert unknown_only([blamed, found("BRR302", 50, LOSS)])[0] == blamed, "elsewhere"
    assert unknown_only([blamed, found("BRR102", 50, METRIC)])[0] == blamed, "faster, and still there"


def test_how_the_time_of_a_line_passes_is_not_told_where_it_should_not_be_there():
    """A metric in every step of a GPU is late at launching: CUDA graphs for the model would not reach it."""

    def found(code: str, expected: float, *where: Span) -> Finding:
        return Finding(code, "x", "host", "warning", Saving(0, expected, 99), "", "", where)

    blamed, launching = found("BRR311", 20, METRIC, MAIN), found("BRR504", 25, METRIC, MAIN)
    assert unknown_only([launching, blamed]) == [blamed]
    inside = found("BRR504", 25, Span("metrics.py", 3), METRIC, MAIN)
    assert unknown_only([inside, blamed]) == [blamed]
    for other in (found("BRR504", 25, LOSS, MAIN), found("BRR504", 50, METRIC, MAIN)):
        assert unknown_only([other, blamed]) == [other, blamed], "elsewhere, or far more than that line"
    known = found("BRR302", 15, METRIC, MAIN)
    assert unknown_only([launching, blamed, known]) == [launching, known], "who says why says it of both"


def test_nothing_of_it_fails_without_signals():
    bare = Ledger(step=StepStats(plain_count=5, plain_wall_ns=1.0))
    assert judge(bare, Case().machine, strict=True)


@pytest.mark.parametrize(("share", "raised"), [(0.01, True), (0.05, False)])
def test_a_line_whose_results_get_a_gradient_has_a_part_in_training(share, raised):
    where = (METRIC, MAIN)
    case = training(
        op("sort", (8, 8), ms=20, phase="other", where=where),
        op("sort_backward", (8, 8), ms=20 * share, phase="backward", where=where),
    )
    assert bool(case.raised("BRR311")) == raised


@pytest.mark.parametrize(("clipping", "raised"), [(11, False), (9, True)])
def test_a_line_below_which_gradients_are_clipped_is_part_of_the_update(clipping, raised):
    clipped = (("torch.nn.utils.clip_grad.clip_grad_norm_", clipping * MS),)
    lines = (
        LineGroup((METRIC, MAIN), clipping * MS, "other", libraries=clipped),
        LineGroup((METRIC, MAIN), (20 - clipping) * MS, "other"),
    )
    assert bool(training(HostGroup((METRIC, MAIN), 20 * MS, "other"), lines=lines).raised("BRR311")) == raised


def test_lines_of_two_files_are_two_things_whatever_their_functions_are_called():
    parts = ((METRIC, 7), (Span("teacher.py", 28, "main"), 7), (Span("teacher.py", 60, "main"), 12))
    case = training(*(HostGroup((line, MAIN), ms * MS, "other") for line, ms in parts))
    (found,) = case.raised("BRR311")
    assert found.where[0].line == 60 and found.saving.ceiling_ns == pytest.approx(12 * MS)


def test_what_a_policy_does_around_its_forward_makes_the_output():
    act, sample, step = Span("rl.py", 202, "main"), Span("rl.py", 128, "Agent.act"), Span("rl.py", 208, "main")
    case = training(HostGroup((sample, act, MAIN), 40 * MS, "other"), HostGroup((step, MAIN), 30 * MS, "other"))
    case.ops = (op("addmm", (8, 8), ms=30, where=(Span("rl.py", 125, "Agent.act"), act, MAIN)),)
    case.step = replace(case.step, kind="inference")
    (found,) = case.raised("BRR311")
    assert found.where[0] == step, "the loop's own line"


def test_where_the_profiled_steps_were_much_slower_it_is_a_note():
    case = training(HostGroup((METRIC, MAIN), 30 * MS, "other"))
    for times, level in ((1.9, "warning"), (2.9, "warning"), (3.1, "note")):  # it may be 30 / 2.9 ms, still a tenth
        case.step = replace(case.step, profiled_count=8, wall_ns=times * 100 * MS)
        assert [found.severity for found in case.raised("BRR311")] == [level]
