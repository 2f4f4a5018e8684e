"""BRR105 to BRR108, BRR111, BRR114 to BRR118: attention by hand, and gradients, graphs, forwards that nobody uses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import LineGroup, OpGroup, StepStats
from gobrrr.recording.model.facts import CompileFacts, Facts, ModuleFacts, OptimizerFacts, OrphanFacts, Span
from gobrrr.rules import unknown_only
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op


def attention(length: int = 512, passes_ms: float = 6.0, products_ms: float = 4.0) -> list[OpGroup]:
    heads, dim = 16, 64
    scores = (heads, length, length)
    split = (2, 8, length, length)
    return [
        op("bmm", (heads, length, dim), (heads, dim, length), ms=products_ms, bound="compute"),
        op("div", split, (), ms=passes_ms),
        op("masked_fill", split, (length, length), ms=passes_ms),
        op("_softmax", split, ms=passes_ms, where=(OTHER_LINE,)),
        op("bmm", scores, (heads, length, dim), ms=products_ms, bound="compute"),
        op("_softmax_backward_data", split, split, ms=passes_ms, phase="backward"),
        op("bmm", (heads, length, dim), (heads, dim, length), ms=products_ms, phase="backward"),
    ]


def test_attention_by_hand_is_found_at_its_softmax():
    (found,) = Case(ops=tuple(attention())).raised("BRR105")
    assert found.where == (OTHER_LINE,)
    assert found.severity == "warning"
    # 36 ms spent; three products of 0.54 GFLOP take 8.05 ms at 200 GFLOP/s, the fused kernel 1.6 times that.
    assert found.saving.expected_ns == pytest.approx(0.85 * (36 - 1.6 * 8.05) * MS, rel=0.01)
    assert found.saving.ceiling_ns < 36 * MS
    assert found.evidence["time_in_passes_over_scores"].value == 24 * MS


def test_dropout_on_the_scores_keeps_a_cpu_from_the_fused_kernel():
    """A GPT with dropout 0.1: 109 of 450 ms were promised, and SDPA brought none."""
    split = (2, 8, 512, 512)
    plain = attention()
    dropped = [*plain, op("bernoulli_", split, (), ms=6)]
    (found,) = Case(ops=tuple(dropped)).raised("BRR105")
    assert found.saving.expected_ns == 0 and found.severity == "note" and "takes none" in found.advice
    assert "sdpa_attention" not in found.remedies and "compile" in found.remedies
    (before,) = Case(ops=(op("bernoulli_", split, (), ms=6), *plain)).raised("BRR105")
    assert before.saving.expected_ns > 0, "dropped keys may go into the mask"
    (elsewhere,) = Case(ops=(*plain, op("bernoulli_", (16, 512, 64), (), ms=6))).raised("BRR105")
    assert elsewhere.saving.expected_ns > 0 and "takes none" not in elsewhere.advice


@pytest.mark.parametrize(("dtype", "itemsize"), [("float", 4), ("c10::BFloat16", 2), ("double", 8)])
def test_scores_are_as_large_as_their_dtype(dtype, itemsize):
    scores = [replace(group, dtypes=(dtype,) * len(group.shapes)) for group in attention()]
    (found,) = Case(ops=tuple(scores)).raised("BRR105")
    assert found.evidence["scores"].value == 16 * 512 * 512 * itemsize
    assert found.cost_bytes == 2 * 16 * 512 * 512 * itemsize


def test_attention_is_silent_for_short_sequences():
    assert not Case(ops=tuple(attention(length=64))).raised("BRR105")


def test_a_softmax_without_products_is_no_attention():
    rest = [group for group in attention() if "bmm" not in group.name]
    assert not Case(ops=tuple(rest)).raised("BRR105")


def test_a_gram_matrix_without_a_second_product_is_no_attention():
    assert not Case(ops=tuple(attention()[:4])).raised("BRR105")


def test_the_librarys_own_fallback_is_not_hand_made():
    inside = [replace(group, parents=("aten::scaled_dot_product_attention",)) for group in attention()]
    assert not Case(ops=tuple(inside)).raised("BRR105")


def test_attention_is_silent_where_the_fused_kernel_would_not_gain():
    # Products far above the fp32 ceiling, as in bf16: the fused kernel, at fp32 speed, would take longer.
    assert not Case(ops=tuple(attention(passes_ms=1.0, products_ms=0.9))).raised("BRR105")


def frozen(num_elements: int, **fields: object) -> Case:
    orphans = OrphanFacts(
        num_tensors=8, num_elements=num_elements, num_bytes=4 * num_elements, names=("stem", "a", "b")
    )
    return Case(
        ops=(op("convolution_backward", (8, 3, 64, 64), ms=40, phase="backward"),),
        facts=Facts(orphans=orphans, optimizers=(OptimizerFacts(id=0, num_elements=1_000_000),)),
        phases=(("forward", 40 * MS), ("backward", 50 * MS)),
    )


def test_gradients_never_used_cost_their_share_of_backward():
    (found,) = frozen(9_000_000).raised("BRR106")
    assert found.where == (LINE,)
    assert found.saving.expected_ns == pytest.approx(0.8 * 0.9 * 50 * MS)
    assert "stem, a, ..." in found.message and "9,000,000" in found.message


def test_optimizers_of_an_earlier_phase_take_no_share_of_it():
    case = frozen(9_000_000)
    before = OptimizerFacts(id=5, num_elements=90_000_000)
    case.facts = replace(case.facts, optimizers=(before, *case.facts.optimizers))
    case.step = replace(case.step, updates=((0, 1),))
    assert case.raised("BRR106")[0].saving == frozen(9_000_000).raised("BRR106")[0].saving


def test_few_orphans_are_not_worth_a_word():
    assert not frozen(10_000).raised("BRR106")


def test_no_orphans_no_finding():
    case = frozen(9_000_000)
    case.facts = Facts(optimizers=case.facts.optimizers)
    assert not case.raised("BRR106")


def inference(**fields: object) -> Case:
    module = ModuleFacts(
        id=0, kind="Net", num_params=100, trainable_params=100, training=False, calls_per_step=1.0, span=OTHER_LINE
    )
    return Case(
        ops=(op("relu", (8, 48, 128, 128), ms=30, calls=6, floor_ns=2e6), op("add", (1,), ms=1, calls=10)),
        step=StepStats(count=90, plain_count=80, kind="inference"),
        facts=Facts(modules=(replace(module, **fields),), minor_faults_per_step=20_000, saved_total=20_000 * 4096),
    )


def test_inference_with_a_graph_pays_for_kept_pages_and_nodes():
    (found,) = inference().raised("BRR107")
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(16 * MS, rel=0.01)
    assert found.saving.ceiling_ns >= 20 * MS
    assert found.cost_bytes == 20_000 * 4096


def test_inference_of_many_small_ops_pays_for_its_nodes():
    case = inference()
    case.ops = (op("add", (8, 8), ms=40, calls=20_000, floor_ns=0.0, dispatch_ns=20 * MS),)
    case.facts = Facts(modules=case.facts.modules)
    (found,) = case.raised("BRR107")
    assert found.saving.expected_ns == pytest.approx(0.3 * 20 * MS)
    assert found.saving.ceiling_ns == pytest.approx((1.2 * 20 + 20) * MS)


@pytest.mark.parametrize("fields", [{"grad_enabled": False}, {"trainable_params": 0}, {"calls_per_step": 0.0}])
def test_inference_without_a_graph_is_silent(fields):
    assert not inference(**fields).raised("BRR107")


@pytest.mark.parametrize(("kept", "optimizers", "told"), [
    (1 << 20, (), True), ((1 << 20) - 1, (), False), (1 << 30, (OptimizerFacts(id=5, num_elements=9),), False),
])  # fmt: skip
def test_a_graph_that_costs_memory_alone_is_a_note(kept: int, optimizers: tuple[OptimizerFacts, ...], told: bool):
    """Ten classifications of 60 took less than 0.1 ms of 5 more; what is trained may use its graph later."""
    case = inference()
    case.facts = replace(case.facts, minor_faults_per_step=0.0, saved_total=kept, optimizers=optimizers)
    found = case.raised("BRR107")
    assert [(each.severity, each.cost_bytes) for each in found] == ([("note", kept)] if told else [])
    assert all(each.saving.ceiling_ns < MS and each.remedies == ("no_grad_evaluation",) for each in found)


def test_training_is_no_inference():
    case = inference()
    case.step = StepStats(count=90, plain_count=80, kind="training")
    assert not case.raised("BRR107")
    case = inference()
    case.ops += (op("mm", (8, 8), (8, 8), phase="backward"),)
    assert not case.raised("BRR107")


def twice(repeated: float = 1.0, calls: float = 2.0, passes: float = 1.0) -> Case:
    module = ModuleFacts(
        id=0,
        kind="Net",
        calls_per_step=calls,
        repeated_inputs=repeated,
        span=LINE,
        repeated_span=OTHER_LINE,
        repeated_span_calls=1.0,
    )
    inner = Span("model.py", 7, "forward")
    accumulate = OpGroup(name="torch::autograd::AccumulateGrad", phase="backward", calls=4 * passes)
    return Case(
        ops=(
            op("addmm", (8,), (8, 8), (8, 8), ms=30, where=(inner, LINE)),
            op("addmm", (8,), (8, 8), (8, 8), ms=30, where=(inner, OTHER_LINE)),
            accumulate,
        ),
        facts=Facts(modules=(module,), optimizers=(OptimizerFacts(id=0, num_tensors=4),)),
        phases=(("forward", 62 * MS), ("backward", 30 * MS)),
    )


def test_same_forward_twice_costs_what_runs_below_its_line():
    (found,) = twice().raised("BRR108")
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(0.85 * 30 * MS)
    assert found.saving.low_ns <= 30 * MS <= found.saving.ceiling_ns


def test_of_a_line_that_calls_for_other_inputs_too_the_repeats_have_their_part():
    case = twice()
    module = replace(case.facts.modules[0], repeated_span=OTHER_LINE, span=OTHER_LINE, repeated_span_calls=2.0)
    case.facts = replace(case.facts, modules=(module,))
    assert case.raised("BRR108")[0].saving.expected_ns == pytest.approx(0.85 * 15 * MS)


def test_same_forward_twice_counts_what_plain_steps_spend_at_the_line():
    case = twice()
    case.extra = {"lines": (LineGroup((OTHER_LINE,), 36 * MS, "forward"),)}
    assert case.raised("BRR108")[0].saving.expected_ns == pytest.approx(0.85 * 36 * MS)


def test_same_forward_twice_falls_back_to_an_even_share():
    case = twice()
    case.ops = (op("addmm", (8,), (8, 8), (8, 8), ms=60, where=(Span("model.py", 7),)),)
    assert case.raised("BRR108")[0].saving.expected_ns == pytest.approx(0.85 * 31 * MS)


def test_micro_batches_that_reuse_memory_are_no_repeats():
    assert not twice(repeated=1.0, calls=2.0, passes=2.0).raised("BRR108")
    assert not twice(repeated=0.0).raised("BRR108")


def test_calls_of_one_line_count_by_their_size():
    """A picture is classified, then fifty copies of it, then the picture again."""
    whole = twice().raised("BRR108")[0].saving.expected_ns
    case = twice()
    case.facts = replace(case.facts, modules=(replace(case.facts.modules[0], repeated_share=0.25),))
    assert case.raised("BRR108")[0].saving.expected_ns == pytest.approx(0.25 * whole)


def test_a_small_module_that_comes_again_is_not_charged_with_its_line():
    """A softplus that keeps a length positive is called at the line of the loss, as everything is."""
    case = twice()
    (again,) = case.facts.modules
    net = replace(again, id=7, kind="Net", num_params=100 * (again.num_params or 1), repeated_inputs=0.0)
    case.facts = replace(case.facts, modules=(replace(again, num_params=0, kind="Softplus"), net))
    assert not case.raised("BRR108")
    case.facts = replace(case.facts, modules=(again, replace(net, num_params=again.num_params)))
    assert case.raised("BRR108")
    kernels = OptimizerFacts(id=0, num_elements=1000)  # of a library whose modules are called in a way of their own
    case.facts = replace(case.facts, modules=(replace(again, num_params=0),), optimizers=(kernels,))
    assert not case.raised("BRR108")


CALL = Span("train.py", 40, "Deep.forward")


def again(ms: float, line: int, **fields) -> OpGroup:
    where = (Span("train.py", line, "Block.forward"), CALL, OTHER_LINE)
    return op("mm", (64, 64), (64, 64), ms=ms, phase="backward", recomputed=True, where=where, **fields)


def test_activations_computed_again_with_room_for_them():
    """Two lines of a block, which one call makes again: that call is the line to mend."""
    case = Case(ops=(again(6, 12, bytes=4e9), again(9, 13, bytes=5e9)), facts=Facts(peak_rss_bytes=1 << 30))
    (found,) = case.raised("BRR111")
    assert found.where == (CALL, OTHER_LINE)
    assert found.saving.expected_ns == pytest.approx(0.9 * 15 * MS)
    assert found.saving.low_ns == pytest.approx(0.5 * 15 * MS)


def test_the_python_between_them_runs_again_too() -> None:
    """What the node that calls them takes beyond its dispatch; not the engine, nor a node that calls nothing again."""
    engine = "autograd::engine::evaluate_function: MmBackward0"
    nodes = tuple(
        op(name, ms=ms, phase="backward", dispatch_ns=1 * MS) for name, ms in
        ((engine, 3), ("MmBackward0", 5), ("MulBackward0", 9), ("AddBackward0", 0.1))
    )  # fmt: skip
    nodes = tuple(replace(node, name=node.name.removeprefix("aten::")) for node in nodes)
    within = again(10, 12, parents=(engine, "AddBackward0", "MmBackward0", "aten::addmm", "aten::linear"))
    nodes += (op("addmm", ms=7),)  # of forward
    linear = again(2, 12, parents=(engine, "MmBackward0"))
    case = Case(ops=(*nodes, within, replace(linear, name="aten::linear")), facts=Facts(peak_rss_bytes=1 << 30))
    (found,) = case.raised("BRR111")
    assert found.saving.expected_ns == pytest.approx(0.9 * (12 + 4) * MS)


def test_recomputation_that_memory_asks_for_is_no_waste():
    full = Facts(peak_rss_bytes=12 << 30)  # of 16
    assert not Case(ops=(again(15, 12),), facts=full).raised("BRR111")
    much = again(15, 12, bytes=12e9)
    assert not Case(ops=(much,), facts=Facts(peak_rss_bytes=1 << 30)).raised("BRR111"), "kept, it would not fit"
    assert not Case(ops=(again(15, 12),), facts=Facts()).raised("BRR111"), "nobody saw the peak"
    once = op("mm", (64, 64), (64, 64), ms=15, phase="backward")
    assert not Case(ops=(once,), facts=Facts(peak_rss_bytes=1 << 30)).raised("BRR111")


@pytest.mark.parametrize(("ms", "told"), [(3.6, True), (3.4, False), (0.0, False)])
def test_work_that_is_the_same_in_every_step_counts_by_its_own_time(ms: float, told: bool):
    constant = replace(op("mul", (9, 9), (9, 9), ms=ms, where=(OTHER_LINE,)), fate="constant")
    case = Case(ops=(op("mm", (8, 8), (8, 8), ms=90), constant))
    found = case.raised("BRR114")
    assert [each.where for each in found] == ([(OTHER_LINE,)] if told else [])
    assert all(each.saving.expected_ns == pytest.approx(0.85 * ms * MS) for each in found)
    case.facts = replace(case.facts, compile=CompileFacts(used=True))
    assert not case.raised("BRR114")


def test_a_faster_way_of_work_that_need_not_be_there_is_not_told():
    constant = replace(op("mul", (9, 9), (9, 9), ms=20, where=(OTHER_LINE,)), fate="constant")
    (same,) = Case(ops=(constant,)).raised("BRR114")
    chain, elsewhere = replace(same, code="BRR201"), replace(same, code="BRR201", where=(LINE,))
    assert unknown_only([same, chain, elsewhere]) == [same, elsewhere]


def computed_twice(**changes: object) -> Case:
    inner, first, second = Span("model.py", 7, "distances"), Span("model.py", 9, "pull"), Span("model.py", 12, "push")
    work = op("sub", (9, 9), (9, 9), ms=20)
    return Case(ops=(
        replace(work, where=(inner, first, LINE)),
        replace(work, where=(inner, second, LINE), **{"fate": "repeated", **changes}),
        replace(work, where=(inner, second, LINE), phase="backward", ns=10 * MS),
        op("mm", (8, 8), (8, 8), ms=50),
    ))  # fmt: skip


def test_what_is_computed_twice_is_told_at_its_second_call():
    (found,) = computed_twice().raised("BRR115")
    assert [span.function for span in found.where] == ["push", LINE.function]
    assert found.saving.expected_ns == pytest.approx(0.85 * 30 * MS)
    assert not computed_twice(fate="").raised("BRR115")


def test_a_backward_is_not_needed_twice_where_little_of_its_line_is():
    case = computed_twice()
    case.ops += (replace(case.ops[0], where=case.ops[1].where),)
    assert case.raised("BRR115")[0].saving.expected_ns == pytest.approx(0.85 * 20 * MS)


def test_checkpoints_backwards_and_compiled_code_compute_nothing_twice():
    assert not computed_twice(recomputed=True).raised("BRR115")
    assert not computed_twice(phase="backward").raised("BRR115")
    case = computed_twice()
    case.facts = replace(case.facts, compile=CompileFacts(used=True))
    assert not case.raised("BRR115")


def read_in_part(share: float, **changes: object) -> Case:
    head = op("mm", (9, 9), (9, 9), ms=20, where=(OTHER_LINE,))
    return Case(ops=(
        replace(head, **{"read": share, **changes}), replace(op("add", (9, 9), ms=5, where=(OTHER_LINE,))),
        replace(head, phase="backward", ns=40 * MS), op("mm", (8, 8), (8, 8), ms=50),
    ))  # fmt: skip


def test_rows_that_nobody_reads_cost_their_share_of_forward_and_of_its_backward():
    (found,) = read_in_part(0.1).raised("BRR116")
    unread = 0.9 * 20
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(0.8 * (unread + 40 * unread / 25) * MS)
    assert "10.0 %" in found.message
    assert not read_in_part(1.0).raised("BRR116")
    case = read_in_part(0.1)
    case.facts = replace(case.facts, compile=CompileFacts(used=True))
    assert not case.raised("BRR116")


@pytest.mark.parametrize(("ms", "told"), [(20.0, True), (0.5, False)])
def test_what_changes_no_weight_is_told_where_it_takes_its_share(ms: float, told: bool):
    preview = replace(op("mm", (9, 9), (9, 9), ms=ms, where=(OTHER_LINE,)), fate="for no weight")
    case = Case(ops=(preview, op("mm", (8, 8), (8, 8), ms=50)))
    found = case.raised("BRR117")
    assert [each.where for each in found] == ([(OTHER_LINE,)] if told else [])
    assert all(each.saving.expected_ns == pytest.approx(0.8 * ms * MS) for each in found)
    case.facts = replace(case.facts, compile=CompileFacts(used=True))
    assert not case.raised("BRR117")


def test_backward_of_earlier_steps_is_told_at_the_line_that_carries_them():
    mean = replace(op("mul", (9,), (), ms=1, where=(OTHER_LINE,)), fate="carried")
    old = replace(op("tanh_backward", (9, 9), (9, 9), ms=20, phase="backward"), fate="earlier")
    (found,) = Case(ops=(mean, old, op("mm", (8, 8), (8, 8), ms=50))).raised("BRR118")
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(0.9 * 20 * MS)
    assert not Case(ops=(mean, replace(old, fate=""))).raised("BRR118")
