"""Low, expected and ceiling of every saving, computed by hand from the sick ledgers of the other tests."""

from __future__ import annotations

import pytest

from gobrrr.ledger.model import Account
from gobrrr.recording.facts import CompileFacts, Facts, HeldGraph
from tests.unit.handmade import LINE, MS, OTHER_LINE, Case, machine, op, product
from tests.unit.test_rules_bandwidth import casts, copy, faulting, gelu_by_hand, logits
from tests.unit.test_rules_compile import compiled
from tests.unit.test_rules_compute import fp32_products, in_double
from tests.unit.test_rules_compute_waste import attention, frozen, inference, twice
from tests.unit.test_rules_device import on_gpu
from tests.unit.test_rules_updates import embedding, updating, zeroed


def with_ops(case: Case, *more: object, **fields: object) -> Case:
    case.ops = (*case.ops, *more)
    for name, value in fields.items():
        setattr(case, name, value)
    return case


CONVOLUTION = op("mkldnn_convolution", (8, 64, 56, 56), (64, 64, 3, 3), ms=10)
READER = op("relu", (32, 64, 128), ms=6, floor_ns=2 * MS)
RELU = op("relu", (4096, 4096), ms=6)
GROWTH = 4096 * 5_000.0  # 5000 pages of 1 us
GROWS = Facts(
    held_graphs=(HeldGraph(growth_per_step=1.0, span=OTHER_LINE),),
    rss_growth_per_step=GROWTH,
    minor_faults_per_step=10_000,
    gc_ns_per_step=2 * MS,
)
# fmt: off
TRIPLES = [
    # cast 2; product 23.86, halved, or 10.74 at the ceiling; add 8: half, or four fifths
    ("BRR101", in_double(), 0.4 * 17.93, 17.93, 2 + 13.12 + 6.4),
    # products 12.68 at 200 of 800 GFLOP/s: 3/4, of which 70 %; 2.85 at the ceiling; half of a relu
    ("BRR102", with_ops(fp32_products(bf16=400), RELU), 0.4 * 6.655, 6.655, 12.676 - 2.852 + 3),
    # 27 ms at 10 GFLOP/s; at 200 they take 1.34
    ("BRR103", Case(ops=(product(512, 512, 512, gflops=10, dtype="c10::Half"),), machine=machine(fp16=5)),
     0.5 * 0.95 * 26.84, 0.95 * 26.84, 26.84 - 1.342),
    ("BRR104", fp32_products(fp32_medium=217), 0.4 * 4.784, 0.7 * 12.676 * (1 - 100 / 217), 12.676 - 5.257),
    ("BRR105", Case(ops=tuple(attention())), 0.35 * 19.65, 0.85 * (36 - 1.6 * 8.053), 36 - 4.027),
    ("BRR106", frozen(9_000_000), 0.3 * 45, 0.8 * 45, 50 + 20),
    # 16 ops are 16 us of dispatch, 20,000 pages 20 ms; above the floors 28.2 ms
    ("BRR107", inference(), 0.3 * 16.005, 16.005, 0.0192 + 28.2),
    ("BRR108", twice(), 15, 25.5, 39),
    ("BRR109", on_gpu(product(1024, 768, 50257, dtype="c10::Half")), 0, 8.1, 27),
    ("BRR110", on_gpu(tensor_core_eligible_ns=60 * MS, capability="9.0"), 0.2 * 27, 0.6 * 27, 54),
    # 60 ms; two runs of one pass: 10.07 ms each by the copy rate, 10 as twice the slowest op
    ("BRR201", Case(ops=tuple(gelu_by_hand(ms=10))), 0.3 * 40, 0.8 * 40, 60 - 10),
    ("BRR202", faulting(), 6.4, 16, 20 * 1.02 * 1.3),
    ("BRR203", logits(), 0, 140, 401),
    ("BRR204", with_ops(Case(ops=(copy(ms=8), copy(ms=14))), CONVOLUTION), 6.6, 18.6, 1.15 * 22 + 2),
    ("BRR205", with_ops(casts(), READER), 6, 12, 1.15 * 15 + 4),
    ("BRR206", embedding(), 0.35 * 54.77, 0.8 * 54.77, 1.4 * 55),
    ("BRR207", with_ops(zeroed(), phases=(("optimizer", 30 * MS),)), 6, 15, 24 + 12),
    # one pass of 1.12 GB takes 56 ms; 35 us for ten tensors
    ("BRR208", updating(), 0.35 * 28.365, 0.9 * 28.365, 90 - 28),
    # 5 ms of pages; all 10,000 faults at the upper quartile; 2 ms of the collector; 7 ms above the floor at that line
    ("BRR601", Case(facts=GROWS, ops=(op("add", (8, 8), ms=9, floor_ns=2 * MS, where=(LINE, OTHER_LINE)), RELU)),
     1.5, 4, 10 * 1.02 * 1.3 + 2 + 7),
    ("BRR602", Case(facts=Facts(peak_rss_bytes=1 << 30, swap_used=1 << 30)), 0, 0, 50),
    ("BRR801", compiled(recompiles=5, recompile_ns=1_000_000_000), 8, 18, 24),
    ("BRR802", with_ops(compiled(graph_breaks=100, break_spans=(OTHER_LINE,)),
                        op("exp", (4096, 4096), ms=2, dispatch_ns=MS, where=(OTHER_LINE,))),
     0.2 * 4.7, 3 + 0.5 + 0.6 * 2, 3 + 8 + 4 + 2),
    # dispatch 6, passes 20, host 4, above the floors: none of the add's, 1 of the product's
    ("BRR803", compiled(limit_hit=True), 0, 3 + 0.4 * 4 + 0.6 * 20, 6 + 20 + 4 + 1),
]
# fmt: on


@pytest.mark.parametrize(("code", "case", "low", "expected", "ceiling"), TRIPLES, ids=[triple[0] for triple in TRIPLES])
def test_saving(code, case, low, expected, ceiling):
    (found,) = case.raised(code)
    saving = found.saving
    assert [ns / MS for ns in (saving.low_ns, saving.expected_ns, saving.ceiling_ns)] == pytest.approx(
        [low, expected, ceiling], rel=0.002
    )


def test_a_saving_is_never_more_than_the_step():
    case = updating()
    case.ms = 50
    (found,) = case.raised("BRR208")
    assert found.saving.ceiling_ns == 50 * MS


def test_the_compile_account_is_part_of_the_step():
    case = compiled(recompiles=1, recompile_ns=10**12)
    case.accounts = (Account("compile", 99 * MS, 0.99),)
    (found,) = case.raised("BRR801")
    assert found.saving.ceiling_ns == 100 * MS, "a second per step is capped at the step"


def test_facts_of_compile_are_needed():
    assert not Case(facts=Facts(compile=CompileFacts(used=True))).raised("BRR801")
