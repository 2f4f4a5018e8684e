"""BRR201 to BRR205: chains, page faults, logits, layout copies and casts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import OpGroup, StepStats
from gobrrr.recording.model.facts import CompileFacts, Facts, ModuleFacts, Settings, Span
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op

TENSOR = (64, 1024, 256)  # 64 MiB: one pass of read, read, write takes 10.07 ms at 20 GB/s
NEXT_LINE = Span("train.py", 43, "forward")


def gelu_by_hand(ms: float = 8.0, shape: tuple[int, ...] = TENSOR, **fields: object) -> list[OpGroup]:
    return [
        op("pow", shape, (), ms=ms, calls=2, **fields),
        op("mul", shape, (), ms=3 * ms, calls=6, **fields),
        op("add", shape, shape, ms=ms, calls=2, **fields),
        op("tanh", shape, ms=ms, calls=2, **fields),
    ]


def test_chain_is_one_pass_against_many():
    (found,) = Case(ops=tuple(gelu_by_hand()), ms=100).raised("BRR201")
    assert found.where == (LINE,)
    assert found.evidence["ops_in_chain"].value == 6 and "more such" not in found.message
    # 48 ms; fused: two runs of one pass, 10.07 ms by the copy rate, 8 ms as twice the slowest op.
    assert found.saving.expected_ns == pytest.approx(0.8 * (48 - 16) * MS, rel=0.01)
    assert found.saving.ceiling_ns < 48 * MS


def test_chain_takes_its_backward_along():
    back = replace(op("mul", TENSOR, TENSOR, ms=20, calls=2), phase="backward", parents=("MulBackward0",))
    alone = Case(ops=tuple(gelu_by_hand())).raised("BRR201")[0]
    both = Case(ops=(*gelu_by_hand(), back)).raised("BRR201")[0]
    assert both.evidence["backward"].value == 20 * MS
    assert both.saving.ceiling_ns > alone.saving.ceiling_ns


def test_chain_may_go_over_neighbouring_lines_but_not_over_far_ones():
    near = [*gelu_by_hand()[:2], *(replace(group, where=(NEXT_LINE,)) for group in gelu_by_hand()[2:])]
    (found,) = Case(ops=tuple(near)).raised("BRR201")
    assert found.evidence["ops_in_chain"].value == 6
    spread = [replace(group, where=(Span("train.py", 10 * place),)) for place, group in enumerate(gelu_by_hand(), 1)]
    assert not Case(ops=tuple(spread)).raised("BRR201")


def test_chains_of_one_step_are_one_finding_at_the_costliest():
    other = [replace(group, where=(OTHER_LINE,)) for group in gelu_by_hand(ms=4)]
    (found,) = Case(ops=(*gelu_by_hand(), *other)).raised("BRR201")
    assert found.where == (LINE,) and found.evidence["chains"].value == 2
    assert found.evidence["forward"].value == 72 * MS
    assert "and 1 more chains" in found.message


def test_runs_of_one_expression_in_several_layers_are_one_chain():
    between = op("mm", (8, 8), (8, 8), ms=1)
    back = replace(op("mul", TENSOR, TENSOR, ms=20, calls=2), phase="backward")
    (found,) = Case(ops=(*gelu_by_hand(), between, *gelu_by_hand(), between, back), ms=200).raised("BRR201")
    assert found.evidence["chains"].value == 1 and found.evidence["ops_in_chain"].value == 6
    assert found.evidence["forward"].value == 96 * MS
    assert found.evidence["backward"].value == 20 * MS, "not once per layer"


def test_chains_on_one_line_share_their_backward():
    """Two lengths of chain over tensors of one size, all in a trainer's one line: 60 ms of backward, not 120."""
    between = op("mm", (8, 8), (8, 8), ms=1)
    pair = [op(name, TENSOR, TENSOR, ms=30, where=(LINE,)) for name in ("mul", "sub")]
    back = replace(op("mul", TENSOR, TENSOR, ms=60, calls=6), phase="backward")
    (found,) = Case(ops=(*gelu_by_hand(), between, *pair, back), ms=200).raised("BRR201")
    (forward,) = Case(ops=(*gelu_by_hand(), between, *pair), ms=200).raised("BRR201")
    passes = found.evidence["single_passes"].value, forward.evidence["single_passes"].value
    assert found.evidence["chains"].value == 2 and passes[0] > passes[1], "each has a pass of its own in backward"
    assert found.evidence["backward"].value == pytest.approx(60 * MS)
    assert found.saving.ceiling_ns < (48 + 60 + 60) * MS


def test_a_short_chain_is_told_where_it_alone_is_worth_it():
    """(a - b).square().mean(): of three ops one pass stays, 10.07 ms by the copy rate, 1.2 to 2 of the slowest."""

    def error(ms: float, line: Span = LINE) -> list[OpGroup]:
        return [
            op("sub", TENSOR, TENSOR, ms=ms, where=(line,)),
            op("square", TENSOR, ms=0.1, floor_ns=7 * MS, where=(line,)),
            op("pow", TENSOR, (), ms=ms, parents=("aten::square",), where=(line,)),
            op("mean", TENSOR, ms=ms, where=(line,)),
        ]

    (found,) = Case(ops=tuple(error(9))).raised("BRR201")
    assert found.evidence["ops_in_chain"].value == 3
    assert found.saving.expected_ns == pytest.approx(0.8 * (27 - 1.2 * 9) * MS, rel=0.02)
    assert Case(ops=tuple(error(9)), ms=420).raised("BRR201") and not Case(ops=tuple(error(9)), ms=440).raised("BRR201")
    apart = op("mm", (8, 8), (8, 8), ms=1, where=(OTHER_LINE,))
    both = (*error(9), apart, *error(9, replace(LINE, line=LINE.line + 40)))
    assert not Case(ops=both, ms=440).raised("BRR201"), "each by itself is not worth a word"
    assert not Case(ops=tuple(error(9)[:1]), ms=20).raised("BRR201"), "one op is no chain"
    further = replace(LINE, line=LINE.line + 40)
    long = (*gelu_by_hand(), apart, *gelu_by_hand(where=(further,)))
    assert not Case(ops=tuple(gelu_by_hand()), ms=900).raised("BRR201")
    assert Case(ops=long, ms=900).raised("BRR201"), "expressions count together"


def test_chains_that_a_compiler_should_have_fused_are_not_this_rules():
    module = ModuleFacts(id=0, compiled=True, span=LINE)
    assert not Case(ops=tuple(gelu_by_hand()), facts=Facts(modules=(module,))).raised("BRR201")
    limited = Facts(compile=CompileFacts(used=True, limit_hit=True))
    assert not Case(ops=tuple(gelu_by_hand()), facts=limited).raised("BRR201")


def test_a_product_between_ends_the_chain():
    pow_, mul, add, tanh = (replace(group, calls=2.0) for group in gelu_by_hand())
    between = op("mm", (8, 8), (8, 8), ms=1, parents=("aten::linear",))
    assert not Case(ops=(pow_, mul, between, add, tanh)).raised("BRR201")


def test_one_activation_in_every_layer_is_no_chain():
    layer = [
        op("mkldnn_convolution", (8, 64, 56, 56), (64, 64, 3, 3), parents=("aten::conv2d",), ms=5),
        op("relu", TENSOR, ms=0.1, floor_ns=0.0),
        op("clamp_min", TENSOR, (), ms=12, parents=("aten::relu",)),
    ]
    back = op("threshold_backward", TENSOR, TENSOR, ms=60, phase="backward")
    assert not Case(ops=(*layer * 4, back), ms=200).raised("BRR201")


def test_the_copy_of_a_number_parts_no_chain():
    pow_, *rest = gelu_by_hand()
    number = op("copy_", (), (), ms=0.1, parents=("aten::mul", "aten::to", "aten::_to_copy"))
    (found,) = Case(ops=(pow_, number, *rest)).raised("BRR201")
    assert found.evidence["ops_in_chain"].value == 6


def test_an_alias_is_a_part_of_the_chain_that_calls_it():
    squared = replace(gelu_by_hand()[0], parents=("aten::square",))
    (found,) = Case(ops=(squared, *gelu_by_hand()[1:])).raised("BRR201")
    assert found.evidence["ops_in_chain"].value == 6


@pytest.mark.parametrize(
    "ops",
    [
        gelu_by_hand()[:1],
        gelu_by_hand(shape=(64, 64)),
        gelu_by_hand(parents=("aten::dropout",)),
        gelu_by_hand(where=()),
        [replace(group, name=group.name + "_") for group in gelu_by_hand()],
        gelu_by_hand(ms=0.2),
    ],
    ids=["one op", "small", "library", "nowhere", "in place", "no time"],
)
def test_chain_is_silent(ops):
    assert not Case(ops=tuple(ops)).raised("BRR201")


def faulting(faults: float = 20_000, shape: tuple[int, ...] = (16, 1024, 1024), **facts: object) -> Case:
    big = op("add", shape, shape, ms=40, floor_ns=10 * MS, where=(OTHER_LINE,))
    return Case(ops=(op("relu", (8, 8), ms=1), big), facts=Facts(minor_faults_per_step=faults, **facts))


def test_page_faults_cost_what_a_fresh_page_costs_here():
    (found,) = faulting().raised("BRR202")
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(16 * MS)
    assert found.severity == "warning"


def test_page_faults_explain_no_more_than_what_is_above_the_floors():
    (found,) = faulting(faults=90_000).raised("BRR202")
    assert found.saving.expected_ns == pytest.approx(0.9 * 30.2 * MS)


def test_page_faults_of_small_results_cost_more_than_touching_the_pages():
    """They are given back and fetched again: metric_learning, 4.8 ms of faults per step, gained 10.5 of 42."""
    (found,) = faulting(faults=9_000, shape=(1024, 1024)).raised("BRR202")
    saving = found.saving
    assert (saving.low_ns, saving.expected_ns, saving.ceiling_ns) == pytest.approx((5.04 * MS, 12.6 * MS, 22.5 * MS))
    assert found.severity == "warning" and "given back and fetched again" in found.message


def test_page_faults_of_growing_memory_are_not_the_allocators():
    assert not faulting(rss_growth_per_step=20_000 * 4096.0).raised("BRR202")
    assert not faulting(faults=500).raised("BRR202")


def test_page_faults_that_ended_with_the_profile_are_told_and_promise_nothing():
    (found,) = faulting(faults=0, minor_faults_before=20_000.0, minor_faults_after=0.0).raised("BRR202")
    assert (found.saving.low_ns, found.saving.expected_ns, found.saving.ceiling_ns) == (0, 28 * MS, 50 * MS)
    assert found.between and found.severity == "note" and "malloc_thresholds" in found.remedies
    assert "20,000 page faults per step cost 20.0 ms before the profiled window, 0 after it" in found.message
    assert not faulting(faults=0, minor_faults_before=1_000.0, minor_faults_after=0.0).raised("BRR202"), (
        "not worth a word"
    )
    still = faulting(faults=0, minor_faults_before=23_000.0, minor_faults_after=12_000.0)
    assert not still.raised("BRR202"), "they did not end"
    (many,) = faulting(faults=0, minor_faults_before=2e6, minor_faults_after=0.0).raised("BRR202")
    assert many.saving.ceiling_ns == many.saving.expected_ns == 100 * MS, "no more than the step"
    assert not faulting(faults=0, minor_faults_before=20_000.0).raised("BRR202"), "nobody saw that they ended"
    (usual,) = faulting(minor_faults_before=80_000.0).raised("BRR202")
    assert not usual.between, "what the plain steps have is told as theirs"


def test_page_faults_of_a_graph_that_nobody_uses_are_not_the_allocators():
    module = ModuleFacts(id=0, trainable_params=5, calls_per_step=1.0)
    case = faulting(modules=(module,), saved_total=20_000 * 4096)
    assert case.raised("BRR202")
    case.step = StepStats(kind="inference", count=50)
    assert not case.raised("BRR202")


def logits(classes: int = 50_000, rows: int = 1024) -> Case:
    shape = (rows, classes)
    products = {"bound": "compute", "floor_ns": 80 * MS}
    return Case(
        ops=(
            op("mm", (rows, 768), (768, classes), ms=100, **products),
            op("_log_softmax", shape, ms=60, phase="loss", where=(OTHER_LINE,), floor_ns=20 * MS),
            op("nll_loss_forward", shape, (rows,), ms=1, phase="loss"),
            op("nll_loss_backward", (), shape, (rows,), ms=50, phase="backward", floor_ns=10 * MS),
            op("_log_softmax_backward_data", shape, shape, ms=90, phase="backward", floor_ns=30 * MS),
            op("mm", (classes, rows), (rows, 768), ms=100, phase="backward", **products),
        ),
        ms=500,
    )


def test_large_logits_cost_bytes_and_passes():
    (found,) = logits().raised("BRR203")
    assert found.where == (OTHER_LINE,)
    assert found.cost_bytes == 3 * 1024 * 50_000 * 4
    assert found.evidence["passes"].value == 201 * MS
    assert found.saving.expected_ns == pytest.approx(0.7 * 200 * MS, rel=0.01)
    assert found.saving.low_ns == 0


def test_logits_that_are_reached_in_two_ways_are_told_once():
    """A BERT's, in two of three steps with other strides: the two findings were the same in every figure."""
    case = logits()
    whole = next(group for group in case.ops if group.name == "aten::_log_softmax")
    parts = [
        replace(whole, ns=part * whole.ns, floor_ns=part * whole.floor_ns, calls=part * whole.calls)
        for part in (1 / 3, 2 / 3)
    ]
    case.ops = (*(group for group in case.ops if group is not whole), *parts)
    (found,) = case.raised("BRR203")
    (plain,) = logits().raised("BRR203")
    assert found.saving.expected_ns == pytest.approx(plain.saving.expected_ns) and found.cost_bytes == plain.cost_bytes
    assert found.message == plain.message and found.where == plain.where


def test_logits_of_inference_have_no_gradient():
    case = logits()
    case.ops = tuple(group for group in case.ops if group.phase != "backward")
    (found,) = case.raised("BRR203")
    assert found.cost_bytes == 2 * 1024 * 50_000 * 4
    assert found.saving.expected_ns == pytest.approx(0.5 * 61 * MS + 0.5 * (20 + 40 + 0.2) * MS, rel=0.01)


@pytest.mark.parametrize(("rows", "told"), [(448, True), (447, False)])
def test_logits_of_a_quarter_of_a_gibibyte_are_told_whatever_they_cost(rows, told):
    """Three times 50,000 classes in fp32: 256 MiB at 447.4 rows."""
    case = logits(50_000, rows)
    case.ops = tuple(replace(group, ns=group.ns / 1e4, floor_ns=0.0, calls=1e-3) for group in case.ops)
    assert bool(case.raised("BRR203")) is told


@pytest.mark.parametrize(("classes", "rows"), [(1000, 1024), (50_000, 64)])
def test_small_logits_are_silent(classes, rows):
    assert not logits(classes, rows).raised("BRR203")


def test_a_large_log_softmax_without_a_loss_is_silent():
    case = logits()
    case.ops = tuple(group for group in case.ops if "nll" not in group.name)
    assert not case.raised("BRR203")


def copy(shape=(32, 64, 128), source=(8192, 1, 64), dtypes=("float", "float"), ms=20.0, **fields) -> OpGroup:
    own = op("copy_", shape).strides[0]
    fields = {"parents": ("aten::clone",)} | fields
    return op("copy_", shape, shape, dtypes=dtypes, strides=(own, source), ms=ms, **fields)


def test_layout_copies_are_summed_and_shown_at_the_costliest_line():
    ops = (copy(ms=8), copy(ms=14, where=(OTHER_LINE,)), copy(ms=4, phase="backward", where=(OTHER_LINE,)))
    (found,) = Case(ops=ops).raised("BRR204")
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(0.8 * 26 * MS)
    assert found.evidence["lines"].value == 2
    assert "channels_last" not in found.remedies, "no convolution wants them so"
    (beside,) = Case(ops=(*ops, op("mkldnn_convolution", (8, 8, 4, 4), ms=1))).raised("BRR204")
    assert "channels_last" in beside.remedies


@pytest.mark.parametrize(
    "group",
    [
        copy(source=(8192, 128, 1)),
        copy(dtypes=("float", "c10::BFloat16")),
        copy(source=(0, 0, 0)),
        copy(source=(0, 128, 1)),
        copy(shape=(32, 1, 128), source=(128, 7, 1)),
        copy(phase="data"),
        copy(phase="backward", parents=("ConvolutionBackward0", "aten::convolution_backward", "aten::contiguous")),
        copy(phase="optimizer"),
        copy(parents=("Module: Cache",)),
        copy(ms=2),
    ],
    ids=[
        "same layout",
        "a cast",
        "a sum's gradient",
        "a bias",
        "length one",
        "data",
        "a convolution's own",
        "optimizer",
        "into a tensor of the program's own",
        "little",
    ],
)
def test_layout_copies_are_silent(group):
    assert not Case(ops=(group,)).raised("BRR204")


def casts(autocast: str | None = None) -> Case:
    there = copy(source=(8192, 128, 1), dtypes=("c10::BFloat16", "float"), ms=6)
    back = copy(source=(8192, 128, 1), dtypes=("float", "c10::BFloat16"), ms=8, where=(OTHER_LINE,))
    around = op("_to_copy", (32, 64, 128), ms=1)
    return Case(ops=(there, around, back), facts=Facts(settings=Settings(autocast=autocast)))


def test_casts_back_and_forth_are_told():
    (found,) = casts().raised("BRR205")
    assert "back and forth" in found.message and "bfloat16 and float32" in found.message
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(0.8 * 15 * MS)


def test_formats_of_eight_bits_are_floating_ones():
    there = copy(source=(8192, 128, 1), dtypes=("c10::Float8_e4m3fn", "float"), ms=6)
    back = copy(source=(8192, 128, 1), dtypes=("float", "c10::Float8_e4m3fn"), ms=8)
    (found,) = Case(ops=(there, back)).raised("BRR205")
    assert "float32 and float8_e4m3fn, back and forth" in found.message


def test_casts_of_autocast_are_its_price():
    assert not casts(autocast="bf16").raised("BRR205")


def test_casts_of_integers_and_of_double_are_not_this_rules():
    for dtypes in (("float", "long int"), ("float", "double"), ("float", "float")):
        assert not Case(ops=(copy(source=(8192, 128, 1), dtypes=dtypes),)).raised("BRR205")
