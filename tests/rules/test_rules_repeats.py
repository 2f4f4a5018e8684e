"""What loops repeat: a line's op many times in a row, weights updated by hand, a text read anew for each token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import gobrrr
from gobrrr.capture.process.config import Config
from gobrrr.capture.session import window_plan
from gobrrr.integrations import watch as api
from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.model.ledger import Account, OpGroup, StepStats
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.recording.model.facts import Facts, InputFacts, ModuleFacts, OptimizerFacts, Span
from gobrrr.recording.run_folder.run import load_run
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op
from tests.support.rule_lines import host

TENSOR = (64, 1024, 256)
WEIGHT, BIAS = (512, 512), (512,)
UPDATE = Span("train.py", 70, "main")


def in_a_row(work: object, folder: Path) -> dict[str, float]:
    """Of each op of a watched loop."""
    with gobrrr.watch(folder, show=False):
        for _ in gobrrr.steps(range(120)):
            work()  # type: ignore[operator]
    ledger = build_ledger(Profiled(load_run(folder)[0]), UNKNOWN)
    assert all(group.in_a_row >= 1 for group in ledger.ops)  # those inside of others too
    return {group.name: group.in_a_row for group in ledger.ops}


def test_calls_of_one_line_in_a_row_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_plan, "is_steady", lambda walls, min_time=0: len(walls) >= 4)
    monkeypatch.setattr(api, "Config", lambda folder: Config(folder, plain_ns=1, sample_ns=1, steps=3))
    x = torch.randn(64, 64)

    def repeated() -> None:
        y = x
        for _ in range(7):
            y = y * 1.01

    def parted() -> None:
        y = x
        for _ in range(7):
            y = y * 1.01
            y = y @ x

    def at_two_lines() -> None:
        y = x
        for _ in range(7):
            y = y * 1.01
            y = y + 1

    assert in_a_row(repeated, tmp_path / "a")["aten::mul"] == 7
    assert in_a_row(parted, tmp_path / "b")["aten::mul"] == 1
    both = in_a_row(at_two_lines, tmp_path / "c")
    assert both["aten::mul"] == both["aten::add"] == 7


def test_one_op_of_a_loop_is_a_chain() -> None:
    group = op("mul", TENSOR, (), ms=64, calls=16, phase="other")
    assert not Case(ops=(group,), ms=100).raised("BRR201")
    (found,) = Case(ops=(replace(group, in_a_row=16.0),), ms=100).raised("BRR201")
    assert found.evidence["ops_in_chain"].value == 16
    # 64 ms; fused: one pass, 10.07 ms by the copy rate, 8 ms as twice the slowest op
    assert found.saving.expected_ns == pytest.approx(0.8 * (64 - 8) * MS, rel=0.01)
    (layers,) = Case(ops=(replace(group, in_a_row=8.0),), ms=100).raised("BRR201")
    assert layers.evidence["ops_in_chain"].value == 8 and layers.saving.expected_ns < found.saving.expected_ns


def adam(ms: float = 2.0, **fields: object) -> list[OpGroup]:
    given: dict[str, object] = {"phase": "other", "where": (UPDATE,), "calls": 10, "floor_ns": 0.1 * ms * MS, **fields}
    names = ("mul_", "add_", "addcmul_", "div", "sqrt", "sub_")
    return [op(name, WEIGHT, WEIGHT, ms=ms, **given) for name in names]  # type: ignore[arg-type]


def gradients(shape: tuple[int, ...] = WEIGHT, calls: float = 10.0) -> OpGroup:
    made = op("x", shape, ms=0.1, calls=calls, phase="backward")
    return replace(made, name="torch::autograd::AccumulateGrad")


def test_an_update_by_hand_is_one_and_no_loop_over_samples() -> None:
    case = Case(ops=(gradients(), *adam()), ms=40)
    (found,) = case.raised("BRR209")
    assert found.where == (UPDATE,) and "60 ops on 10 tensors" in found.message
    # 12 ms of ops; one pass: weights and what goes with them written four times, gradients read
    moved = (2 * 4 + 1) * 10 * 512 * 512 * 4
    rate = case.machine.byte_rate(moved, 2)
    assert found.evidence["one_pass"].value == pytest.approx(moved / rate * 1e9 + 10 * 3.5e3, rel=1e-6)
    assert found.saving.expected_ns == pytest.approx(0.8 * (12 * MS - found.evidence["one_pass"].value), rel=0.01)


@pytest.mark.parametrize(
    "ops",
    [
        [gradients(), *(replace(group, parents=("Optimizer.step#Adam.step",)) for group in adam())],  # torch's own
        [gradients(), *adam()[:1]],  # an average of the weights alone: one op per tensor
        [gradients(calls=16.0), *adam()],  # 10 of 16 tensors: not most of the weights
        [gradients(), *adam(ms=6)[:2]],  # p -= lr * grad
        [gradients(), *adam(phase="forward")],
        [gradients(BIAS), *adam()],  # other tensors
        [gradients(), *(replace(group, name="aten::zero_") for group in adam())],
        [gradients(), *(replace(group, name="aten::__and__") for group in adam())],  # not in place
        [gradients(), *(replace(group, parents=("aten::linear",)) for group in adam())],
        adam(),  # nothing was differentiated
    ],
    ids=["optimizer", "average", "few", "two ops", "forward", "shapes", "zeros", "masks", "inside", "no gradients"],
)
def test_what_is_no_update_by_hand(ops: list[OpGroup]) -> None:
    assert not Case(ops=tuple(ops), ms=40).raised("BRR209")


STEP = Span("adam.py", 20, "step")


def out_of_place(**fields: object) -> list[OpGroup]:
    """m = b * m + (1 - b) * g and what follows: nothing is written in place."""
    given: dict[str, object] = {"phase": "other", "where": (UPDATE,), "calls": 10, "floor_ns": 0.2 * MS, **fields}
    names = ("mul", "add", "pow", "div", "sqrt", "sub")
    return [op(name, WEIGHT, WEIGHT, ms=2, **given) for name in names]  # type: ignore[arg-type]


def test_an_update_by_hand_need_not_write_in_place() -> None:
    case = Case(ops=(gradients(), *out_of_place()), ms=40)
    (found,) = case.raised("BRR209")
    moved = (2 * 3 + 1) * 10 * 512 * 512 * 4  # the weight and two moments
    rate = case.machine.byte_rate(moved, 2)
    assert found.evidence["one_pass"].value == pytest.approx(moved / rate * 1e9 + 10 * 3.5e3, rel=1e-6)
    assert not case.raised("BRR201") and not case.raised("BRR301"), "told once"
    assert found.severity == "note" and found.saving.low_ns == 0 and "looks like" in found.message, "or statistics"
    in_place = [replace(group, name=group.name + "_") for group in out_of_place()]
    (sure,) = Case(ops=(gradients(), *in_place), ms=40).raised("BRR209")
    assert sure.severity != "note" and sure.saving.low_ns > 0 and "looks like" not in sure.message


def test_what_is_differentiated_through_is_no_update() -> None:
    """MAML's inner loop: torch.optim can't take its place."""
    through = op("mul", WEIGHT, WEIGHT, ms=1, calls=10, phase="backward", where=(UPDATE,))
    assert not Case(ops=(gradients(), through, *adam()), ms=40).raised("BRR209")


def test_gradients_that_are_not_accumulated_are_those_of_the_products_weights() -> None:
    product = op("mm", (32, 512), (512, 512), ms=1, calls=10)
    passed = op("mm", (512, 32), (32, 512), ms=1, calls=10, phase="backward")
    assert Case(ops=(product, passed, *out_of_place()), ms=40).raised("BRR209")
    assert not Case(ops=(product, *out_of_place()), ms=40).raised("BRR209"), "nothing was differentiated"
    batched = replace(product, name="aten::bmm", shapes=((8, 32, 512), (8, 512, 512)))  # attention's: no weight
    assert not Case(ops=(batched, passed, *out_of_place()), ms=40).raised("BRR209")


@pytest.mark.parametrize(("fan_in", "fan_out"), [(512, 256), (256, 512)])
def test_a_layer_multiplies_by_the_transpose_of_the_weight_that_is_updated(fan_in: int, fan_out: int) -> None:
    product = op("addmm", (fan_out,), (32, fan_in), (fan_in, fan_out), ms=1, calls=10)
    passed = op("mm", (fan_out, 32), (32, fan_in), ms=1, calls=10, phase="backward")
    updates = [replace(group, shapes=((fan_out, fan_in),) * 2) for group in out_of_place()]
    (found,) = Case(ops=(product, passed, *updates), ms=40).raised("BRR209")
    assert found.evidence["tensors"].value == 10


@pytest.mark.parametrize(("updated", "times", "told"), [(8, 3, True), (7, 3, False), (10, 2, False)])
def test_the_edges_of_an_update(updated: int, times: int, told: bool) -> None:
    """Eight of ten tensors, three ops each; a tensor that is passed over again stands for no other."""
    ops = [replace(group, calls=updated, ns=6 * MS) for group in out_of_place()[:times]]
    assert bool(Case(ops=(gradients(), *ops), ms=40).raised("BRR209")) == told
    again = [replace(group, shapes=(BIAS, BIAS), calls=5000) for group in ops]
    both = (gradients(), gradients(BIAS, calls=1.0), *ops, *again)
    assert not Case(ops=both, ms=40).raised("BRR209") or updated > 7


def test_pythons_time_between_the_ops_of_an_update_goes_with_it() -> None:
    for phase, more in (("other", 5), ("optimizer", 5), ("forward", 0)):
        case = Case(ops=(gradients(), *adam()), ms=40, extra={"host": (host(5, UPDATE, phase=phase),)})
        (found,) = case.raised("BRR209")
        assert found.evidence["update"].value == pytest.approx((12 + more) * MS)


@pytest.mark.parametrize(
    ("where", "told"),
    [((STEP, UPDATE), True), ((Span("adam.py", 40, "moments"), STEP, UPDATE), True), ((UPDATE,), False)],
    ids=["its step", "what its step calls", "torch's own, which has no line of the user's"],
)
def test_an_optimizer_that_the_program_wrote_is_an_update_by_hand(where: tuple[Span, ...], told: bool) -> None:
    parents = ("Optimizer.step#MyAdam.step",)
    optimizer = OptimizerFacts(id=0, kind="MyAdam", num_tensors=10, num_elements=10 * 512 * 512, span=UPDATE)
    for made in (adam, out_of_place):
        ops = [replace(group, parents=parents, phase="optimizer", where=where) for group in made()]
        case = Case(ops=(gradients(), *ops), ms=40, facts=Facts(optimizers=(optimizer,)))
        assert bool(case.raised("BRR209")) == told
        unknown = Case(ops=(gradients(), *ops), ms=40, facts=Facts(optimizers=(replace(optimizer, span=None),)))
        assert not unknown.raised("BRR209"), "whose step it is nobody knows"


def decoding(*lengths: int, calls: float = 0.25, where: tuple[Span, ...] = (LINE,)) -> tuple[OpGroup, ...]:
    found = []
    for length in lengths:
        found.append(op("embedding", (2000, 64), (4, length), ms=0.1, calls=calls, where=where))
        found.append(op("addmm", (64,), (4, length, 64), (64, 64), ms=10, calls=calls, where=(OTHER_LINE,)))
    return tuple(found)


def inferring(*ops: OpGroup, kind: str = "inference") -> Case:
    module = ModuleFacts(id=0, kind="Writer", span=OTHER_LINE, num_params=9, calls_per_step=1.0)
    return Case(ops=ops, ms=50, step=StepStats(kind=kind, count=100), facts=Facts(modules=(module,)))


def test_a_text_read_anew_for_each_token_is_told_with_its_lengths() -> None:
    ops = [replace(group, dispatch_ns=0.5 * MS) for group in decoding(100, 101, 102, 103)]
    (found,) = inferring(*ops).raised("BRR314")
    assert found.where == (OTHER_LINE,) and "100 to 103" in found.message
    # embedding's 0.1 ms are all dispatch, which one token costs too, as it costs its own share of the work
    again = 4 * 9.5 * MS * (1 - 1 / 101.5)
    assert found.saving.expected_ns == pytest.approx(0.7 * again, rel=1e-6)


def test_a_window_that_begins_within_a_text_shows_the_next_one_too() -> None:
    """Its last tokens, then the prompt of the next: told where the lengths lie side by side, or the model's input was
    seen to grow."""
    assert inferring(*decoding(103, 104, 100, 101, 102)).raised("BRR314")
    case = inferring(*decoding(120, 100, 101, 102))
    assert not case.raised("BRR314")
    case.facts = replace(case.facts, inputs=(InputFacts((4, 100), "int64", extends=True),))
    assert case.raised("BRR314")
    assert not inferring(*decoding(103, 101, 104, 102)).raised("BRR314")


@pytest.mark.parametrize(
    ("extends", "low"), [((True, True), 0.2), ((None,), 0.0), ((True, False), None)], ids=["read", "unseen", "others"]
)
def test_other_texts_one_longer_each_time_are_not_read_again(extends: tuple[bool | None, ...], low: float) -> None:
    """An encoder that goes through texts sorted by length got 'at least 16.3 ms' of tokens that it had not read."""
    case = inferring(*decoding(100, 101, 102, 103))
    case.facts = replace(case.facts, inputs=tuple(InputFacts((4, 100), "int64", extends=each) for each in extends))
    found = case.raised("BRR314")
    assert bool(found) == (low is not None)
    for each in found:
        assert each.saving.low_ns == pytest.approx(low * each.saving.ceiling_ns)
        assert each.confidence == ("derived" if low else "inferred")


@pytest.mark.parametrize(("drift", "mean", "more"), [(0.05, 55, 0.0), (0.8, 55, 5.0), (0.12, 90, 3.0)])
def test_later_steps_read_more_than_those_that_were_recorded(drift: float, mean: float, more: float) -> None:
    """50 of 204 tokens were recorded: up to 8.7 ms of 14.7 were told, and keys and values saved 12.3 of 17.8. One
    evaluation among them is no growth."""
    step = StepStats(kind="inference", count=100, plain_wall_ns=50 * MS, mean_ns=mean * MS, drift=drift)
    case = inferring(*decoding(100, 101, 102, 103))
    plain = inferring(*decoding(100, 101, 102, 103)).raised("BRR314")[0].evidence["read_again"].value
    case.step = step
    assert case.raised("BRR314")[0].evidence["read_again"].value == pytest.approx(plain + more * MS)
    case.step = replace(step, count=11)
    assert case.raised("BRR314")[0].evidence["read_again"].value == pytest.approx(plain), "eleven steps are no trend"


def test_linear_layers_that_have_all_rows_as_one_read_the_texts_too() -> None:
    """Of a planted writer's 56 ms a step 16 were told, without its addmm of (4 x length, width)."""
    flat = [
        replace(group, shapes=((64,), (4 * group.shapes[1][1], 64), (64, 64))) if "addmm" in group.name else group
        for group in decoding(100, 101, 102, 103)
    ]
    (found,) = inferring(*flat).raised("BRR314")
    assert found.saving.ceiling_ns == pytest.approx(4 * 10.1 * MS * (1 - 1 / 101.5), rel=1e-2)


def test_a_text_that_grows_is_not_told_to_come_in_batches_too() -> None:
    alone = InputFacts(shape=(1, 100), dtype="torch.int64")
    grows, stays = ([replace(group, calls=0.25) for group in decoding(*lengths)] for lengths in ((50, 51, 52), (50,)))
    for ops, codes in ((grows, {"BRR314"}), (stays, {"BRR313"})):
        case = inferring(*ops)
        case.facts = replace(case.facts, inputs=(alone,))
        case.accounts = (Account("host", 40 * MS, 0.8), Account("dispatch", 5 * MS, 0.1))
        assert {code for code in ("BRR313", "BRR314") if case.raised(code)} == codes


@pytest.mark.parametrize(
    "case",
    [
        inferring(*decoding(100, 101)),  # two may be chance
        inferring(*decoding(100, 101, 103)),  # lengths of other texts
        inferring(*decoding(102, 101, 100)),  # texts sorted by falling length
        inferring(*decoding(100, 102, 101)),
        inferring(*decoding(5, 6, 7)),  # too short to matter
        inferring(*decoding(64, 64, 64)),
        inferring(*decoding(2, 3, 4, 5)),  # short ones cost nothing
        inferring(*decoding(100, 101, 102, 103), kind="training"),
        inferring(*decoding(100, 101, 102), *decoding(100, calls=2.0)),  # one of them comes again and again
        inferring(*(decoding(100, where=(Span("a.py", n),))[0] for n in range(4))),
    ],
    ids=["two", "gap", "falling", "shuffled", "tiny", "same", "short", "training", "uneven", "places"],
)
def test_lengths_that_do_not_grow_token_by_token(case: Case) -> None:
    assert not case.raised("BRR314")


@pytest.mark.parametrize(("looks", "repeats"), [(1, 0), (2, 1)])
def test_all_there_is_after_each_fused_update_is_another_models(
    looks: int, repeats: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused update raises no version of what it writes."""
    monkeypatch.setattr(window_plan, "is_steady", lambda walls, min_time=0: len(walls) >= 4)
    monkeypatch.setattr(api, "Config", lambda folder: Config(folder, plain_ns=1, sample_ns=1, steps=3))
    net, x = torch.nn.Linear(64, 64), torch.randn(64, 64)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    with gobrrr.watch(tmp_path, show=False):
        for _ in range(150):
            loss = sum(net(x).square().mean() for _ in range(looks))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (module,) = build_ledger(Profiled(load_run(tmp_path)[0]), UNKNOWN).facts.modules
    assert (module.calls_per_step, module.repeated_inputs) == (looks, repeats)


FEATURES = (8, 24, 96, 96)


def infers(*ops: OpGroup, kind: str = "inference", **facts: Any) -> list[Finding]:
    return Case(ops=ops, ms=50, step=StepStats(kind=kind, count=100), facts=Facts(**facts)).raised("BRR210")


def test_a_norm_right_behind_its_layer_is_told() -> None:
    layer, norm = op("mkldnn_convolution", FEATURES, (24, 24, 1, 1), ms=5), op("native_batch_norm", FEATURES, ms=4)
    around = [
        op("batch_norm", FEATURES, ms=0.01, leaf=False),
        op("_batch_norm_impl_index", FEATURES, ms=0.01, leaf=False),
    ]
    (found,) = infers(layer, *around, norm)
    assert found.saving.expected_ns == pytest.approx(0.8 * 4 * MS) and "1 batch norms" in found.message
    assert infers(op("addmm", (24,), (8, 24), (24, 24), ms=5, bound="compute"), norm)
    assert not infers(layer, norm, kind="training")
    assert not infers(op("relu", FEATURES, ms=5), norm)
    assert not infers(layer, op("add", FEATURES, FEATURES, ms=1), norm)  # what was added to is no layer's output
    assert not infers(norm)
    assert infers(layer, op("empty", ms=0.01), op("as_strided_", FEATURES, ms=0.01), norm)


@pytest.mark.parametrize("recorded", [False, True])
def test_what_freezes_weights_is_no_remedy_where_their_gradients_are_recorded(recorded: bool) -> None:
    layer, norm = op("mkldnn_convolution", FEATURES, (24, 24, 1, 1), ms=5), op("native_batch_norm", FEATURES, ms=4)
    net = ModuleFacts(id=0, num_params=9, trainable_params=9, grad_enabled=recorded, calls_per_step=1.0)
    (found,) = infers(layer, norm, modules=(net,))
    assert ("compile_frozen" in found.remedies) != recorded and "fold_batch_norm" in found.remedies
    assert ("no_grad" in found.advice) == recorded


def test_a_layer_holds_one_norm_and_only_the_forward_is_asked() -> None:
    layer, norm = op("mkldnn_convolution", FEATURES, (24, 24, 1, 1), ms=5), op("native_batch_norm", FEATURES, ms=4)
    second = replace(norm, where=(OTHER_LINE,))
    (found,) = infers(layer, norm, second)
    assert "1 batch norms" in found.message
    assert infers(layer, op("div", FEATURES, ms=1, phase="data"), norm)  # the loader's op stands between no two layers
    assert not infers(*(replace(each, phase="other") for each in (layer, norm)))


@pytest.mark.parametrize("between", ["cat", "max_pool2d_with_indices", "upsample_nearest2d", "index_select"])
def test_a_norm_behind_something_else_is_not_told(between: str) -> None:
    """DenseNet: what a norm is given comes from many layers."""
    layer, norm = op("mkldnn_convolution", FEATURES, (24, 24, 1, 1), ms=5), op("native_batch_norm", FEATURES, ms=4)
    assert not infers(layer, op(between, *([] if between == "cat" else [FEATURES]), ms=1), norm)
