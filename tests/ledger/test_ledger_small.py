"""Small rooms of the ledger by hand: what an engine's steps say, which ops are the same work, whose dtype counts."""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ledger.comparison import counterparts
from gobrrr.ledger.device.kernel_work import _shapes
from gobrrr.ledger.host.host_ops import HostOps, _updates
from gobrrr.ledger.ops.op_times import OpTime
from gobrrr.ledger.ops.pricing import Prices, dtype_of, in_tf32
from gobrrr.ledger.steps.serving import serving_classes
from gobrrr.ledger.steps.step_stats import _drift, levelled
from gobrrr.ledger.work import Work, work_of
from gobrrr.recording.model.serving import Iteration
from gobrrr.recording.model.trace import CPU_OP, USER_ANNOTATION, Ops, Signature
from gobrrr.rules.model import evidence
from tests.support.handmade import machine


def test_steps_of_an_engine_by_kind() -> None:
    """Two decode steps of 4 and 6 sequences, 10 and 30 ms: 10 tokens in 40 ms; a prefill; two of both kinds."""
    steps = [(10, Iteration(0, 0, 4, 4)), (30, Iteration(0, 0, 6, 6)), (50, Iteration(2, 700, 0, 0)),
             (20, Iteration(1, 100, 3, 3)), (40, Iteration(None, None, None, None))]  # fmt: skip
    decode, prefill, mixed = serving_classes([1_000_000 * ms for ms, _ in steps], [each for _, each in steps])
    assert [c.kind for c in (decode, prefill, mixed)] == ["decode", "prefill", "mixed"]
    assert (decode.count, decode.step_ns, decode.prompts, decode.sequences) == (2, 20e6, 0, 5)
    assert (decode.tokens, decode.tokens_per_s) == (5, pytest.approx(250))
    assert (prefill.count, prefill.prompts, prefill.tokens, prefill.tokens_per_s) == (1, 2, 700, pytest.approx(14_000))
    assert (mixed.count, mixed.step_ns, mixed.sequences, mixed.tokens, mixed.tokens_per_s) == (2, 30e6, 3, None, None)
    nothing = serving_classes([0], [Iteration(0, 0, 4, 4)])[0]
    assert (nothing.tokens, nothing.tokens_per_s) == (None, None)
    unsaid = serving_classes([5], [Iteration(None, 3, None, 2)])[0]
    assert (unsaid.prompts, unsaid.sequences, unsaid.tokens) == (None, None, 5)


CONV, CUDNN, MKL, WRAP = (
    ("aten::_convolution", "x"),
    ("aten::cudnn_convolution", "x"),
    ("aten::mkldnn_convolution", "x"),
    ("aten::conv2d", "x"),
)


def test_the_backends_own_ops_are_told_at_the_op_around_them() -> None:
    """Here mkldnn's inside _convolution, there cudnn's with a helper: one pair at _convolution, each side with its own."""
    helper, alone, other = ("aten::cudnn_helper", "x"), ("aten::only_here", "x"), ("aten::add", "x")
    a = {
        CONV: OpTime(1, 10, within=WRAP),
        MKL: OpTime(1, 90, within=CONV),
        WRAP: OpTime(1, 1),
        alone: OpTime(1, 5),
        other: OpTime(1, 2),
    }
    b = {
        CONV: OpTime(1, 20, 1, within=WRAP),
        CUDNN: OpTime(1, 3, 40, within=CONV),
        helper: OpTime(1, 30, 2, within=CUDNN),
        WRAP: OpTime(1, 1),
        other: OpTime(1, 4),
    }
    pairs = {(pair.name, pair.shapes): pair for pair in counterparts(a, b)}
    assert set(pairs) == {CONV, WRAP, alone, other}
    conv = pairs[CONV]
    assert conv.a is not None and conv.b is not None
    assert (conv.a.host_ns, conv.a.device_ns) == (100, 0)
    assert (conv.b.host_ns, conv.b.device_ns) == (53, 43)
    assert conv.by == ("aten::mkldnn_convolution", "aten::cudnn_convolution")
    assert (
        pairs[alone].b is None
        and pairs[alone].a == a[alone]
        and (pairs[other].a, pairs[other].b) == (a[other], b[other])
    )


def test_what_only_one_side_has_inside_stays_itself() -> None:
    """Nothing of the other side stands for it; nor do ops that are around each other."""
    a = {CONV: OpTime(1, 10), MKL: OpTime(1, 90, within=CONV)}
    assert {(p.name, p.shapes) for p in counterparts(a, {CONV: OpTime(1, 20)})} == {CONV, MKL}
    x, y = ("aten::x", ""), ("aten::y", "")
    circle = {x: OpTime(1, 1, within=y), y: OpTime(1, 1, within=x), CONV: OpTime(1, 1)}
    both = counterparts(circle, {CONV: OpTime(1, 1), CUDNN: OpTime(1, 1, within=CONV)})
    assert {(p.name, p.shapes) for p in both} == {x, y, CONV, CUDNN}


@pytest.mark.parametrize(
    ("dtypes", "ceiling"),
    [
        (("float", "float"), "fp32"), (("double",), "fp64"), (("c10::BFloat16",), "bf16"), (("c10::Half", "float"), "fp16"),
        (("long int", "float"), "fp32"), (("long int", "c10::Half"), "fp16"), (("long int", "bool"), "int64"), (("bool",), "bool"),
        (("int",), "int32"), (("short",), "int16"), (("long",), "int64"), (("Scalar", ""), "fp32"), ((), "fp32"),
        (("signed char", "float"), "int8"), (("unsigned char",), "int8"), (("c10::complex<float>",), "fp32"),
        (("c10::complex<double>",), "fp64"), (("c10::Float8_e4m3fn", "c10::BFloat16"), "fp8"), (("c10::Float8_e5m2fnuz",), "fp8"),
    ],
)  # fmt: skip
def test_the_first_floating_input_names_the_ceiling(dtypes: tuple[str, ...], ceiling: str) -> None:
    assert dtype_of(dtypes) == ceiling


def test_work_takes_at_least_what_the_tighter_ceiling_says() -> None:
    """100 GFLOP/s and 20 GB/s on one thread, twice the FLOP/s on two: a millisecond is 1e8 FLOPs or 2e7 bytes."""
    prices = Prices(machine(bf16=400.0), 1, "highest")
    huge = 1 << 30
    assert prices.floor(Work(1e8, 0, "matmul"), ("float",)) == (pytest.approx(1e6), "compute")
    assert prices.floor(Work(1e8, 0, "matmul"), ("c10::BFloat16",)) == (pytest.approx(0.25e6), "compute")
    assert prices.floor(Work(1e8, huge, "matmul"), ("float",)) == (pytest.approx(huge / 20e9 * 1e9), "bandwidth")
    assert prices.floor(Work(1e15, huge, "elementwise"), ("float",)) == (pytest.approx(huge / 20e9 * 1e9), "bandwidth")
    assert Prices(machine(), 2, "highest").floor(Work(1e8, 0, "rnn"), ("float",)) == (pytest.approx(0.5e6), "compute")
    medium = machine(fp32_medium=300.0)
    assert [Prices(medium, 1, word).flop_rate("fp32") for word in (None, "highest", "high", "medium")] == [
        1e11,
        1e11,
        3e11,
        3e11,
    ]
    for word in ("highest", "medium"):  # convolutions take oneDNN's path always; bfloat16 under "medium" is not theirs
        for error, ns in ((5.7e-7, 1e8 / 3e11 * 1e9), (2.9e-3, 1e6)):
            convolved = Prices(replace(medium, fp32_medium_error=error), 1, word)
            assert convolved.floor(Work(1e8, 0, "convolution"), ("float",)) == (pytest.approx(ns), "compute")
    assert Prices(machine(bf16=400.0), 1, None).flop_rate("fp8") == 4e11 and prices.flop_rate("int8") == 1e11
    assert (
        prices.ceiling("compute", "fp32") == 1e11
        and prices.ceiling("bandwidth", "fp32") == prices.memory_rate() == 20e9
    )


def test_a_causal_kernel_skips_what_is_masked_and_its_floor_is_of_the_rest() -> None:
    """8 queries by 8 keys of 16, in 64 heads: 2 products of 2 x 64 x 8 x 8 x 16 FLOPs, and 36 of 64 scores are seen."""
    q = ((4, 16, 8, 16),) * 3
    words, dtypes = ("", "", "", "0.0", "{}", "", ""), ("float",) * 3 + ("Scalar", "Scalar", "", "")
    name, full = "aten::_scaled_dot_product_flash_attention_for_cpu", 2 * 2 * 64 * 8 * 8 * 16
    for causal, seen in ((False, 64), (True, 36)):
        work = work_of(name, (*q, (), (), (), ()), dtypes, [word.format(causal) for word in words])
        assert work is not None and work.flops == full
        floor, bound = Prices(machine(fp32=0.001), 1, "highest").floor(work, ("float",))
        assert (floor, bound) == (pytest.approx(1e9 * full * seen / 64 / 1e6), "compute")


def test_what_may_run_in_tf32_does_so_in_fp32_alone() -> None:
    args = (("aten::mm", "fp32", {"aten::mm"}), ("aten::mm", "fp32", ()), ("aten::mm", "bf16", {"aten::mm"}))
    assert [in_tf32(*each) for each in args] == ["tf32", "fp32", "bf16"]
    assert _shapes(Signature(((32, 512), (), ((2, 3), (4,)), (512, 2048)))) == "32x512, 512x2048"


def test_drift_is_the_last_third_over_the_first() -> None:
    assert _drift(np.array([10.0] * 3 + [99.0] * 3 + [15.0] * 3)) == pytest.approx(0.5)
    assert _drift(np.array([10.0] * 3 + [99.0] * 2 + [15.0] * 3)) == 0.0
    assert _drift(np.array([0.0] * 6 + [5.0] * 3)) == 0.0


def test_steps_of_another_kind_are_brought_to_the_usual_length() -> None:
    """Beginnings of epochs of 30, 40, 50 beside steps of 10: times a quarter, so that their median is the usual one's."""
    begins = np.array([True, False, False, True, False, False, True])
    walls = np.array([30.0, 10, 8, 40, 12, 10, 50])
    assert levelled(walls, begins).tolist() == [7.5, 10, 8, 10, 12, 10, 12.5]
    assert levelled(walls, ~begins & begins) is walls


def test_updates_are_annotations_after_each_other() -> None:
    """One that begins as the one before ends is its own; one inside another (a closure's zero_grad) is not."""
    names = ("Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "aten::add", "other")
    rows = [(0, 10, 50), (1, 20, 10), (0, 60, 40), (2, 70, 5), (3, 100, 9), (0, 130, 7)]
    name, start, dur = np.array(rows, np.int64).T
    kind = np.where(name == 2, CPU_OP, USER_ANNOTATION)
    zero = np.zeros(len(rows), np.int32)
    columns = {column: zero for column in Ops.__annotations__} | {
        "name": name,
        "start": start,
        "dur": dur,
        "kind": kind,
    }
    ops = Ops(**columns)  # type: ignore[arg-type]
    host = HostOps(
        ops, names, zero - 1, dur, zero == 0, kind == CPU_OP, ("other",) * len(rows), zero, np.array([[0, 200]])
    )
    assert _updates(host).tolist() == [[10, 60], [60, 100], [130, 137]]


def test_quantities_are_rounded_to_what_is_told() -> None:
    assert [evidence.ratio(0.123449).value, evidence.count(1.2349).value] == [0.1234, 1.23]
    assert [(q.value, q.unit) for q in (evidence.time(2.6), evidence.size(2.6), evidence.rate(2.6))] == [
        (3, "ns"),
        (3, "B"),
        (3, "FLOP/s"),
    ]
