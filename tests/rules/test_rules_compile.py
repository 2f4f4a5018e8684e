"""BRR801 to BRR803: compiling again, breaking graphs, giving up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Account, HostGroup, StepStats
from gobrrr.recording.model.facts import CompileFacts, Facts, ModuleFacts
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op


def compiled(**fields: object) -> Case:
    return Case(
        facts=Facts(compile=CompileFacts(used=True, num_graphs=3, span=LINE, **fields)),
        step=StepStats(count=60, warmup_count=10),
        ops=(op("add", (4096, 4096), ms=20, dispatch_ns=6 * MS), op("mm", (64, 64), (64, 64), ms=5)),
        accounts=(Account("dispatch", 8 * MS, 0.08), Account("host", 4 * MS, 0.04)),
    )


def test_recompilations_cost_their_time_per_step():
    (found,) = compiled(recompiles=5, recompile_ns=1_000_000_000, reasons=("size mismatch at dim 0",)).raised("BRR801")
    assert found.where == (LINE,) and "size mismatch" in found.message
    assert found.saving.expected_ns == pytest.approx(0.9 * 20 * MS)


def test_recompilations_take_the_ledgers_account_where_it_is_larger():
    case = compiled(recompiles=5, recompile_ns=1)
    case.accounts += (Account("compile", 30 * MS, 0.3),)
    assert case.raised("BRR801")[0].saving.expected_ns == pytest.approx(27 * MS)


@pytest.mark.parametrize("fields", [{}, {"recompiles": 2, "recompile_ns": 1_000_000}, {"recompile_ns": 10**10}])
def test_recompilations_are_silent(fields):
    assert not compiled(**fields).raised("BRR801")


def test_graph_breaks_cost_the_python_between():
    case = compiled(graph_breaks=2, break_spans=(OTHER_LINE,), break_reasons=("call to print",))
    case.extra = {"host": (HostGroup(where=(OTHER_LINE,), ns=9 * MS), HostGroup(where=(LINE,), ns=50 * MS))}
    (found,) = case.raised("BRR802")
    assert found.where == (OTHER_LINE,) and "call to print" in found.message
    assert found.saving.expected_ns == pytest.approx(9.06 * MS)
    assert found.saving.ceiling_ns >= 21 * MS


def test_graph_breaks_without_a_share_of_the_time_are_silent():
    assert not compiled(graph_breaks=2, break_spans=(OTHER_LINE,)).raised("BRR802")
    assert not compiled().raised("BRR802")


def test_a_function_that_was_given_up_runs_eagerly():
    module = ModuleFacts(id=0, compiled=True, span=OTHER_LINE)
    case = Case(ops=(op("mul", (4096, 4096), ms=30, where=(LINE, OTHER_LINE)),), facts=Facts(modules=(module,)))
    (found,) = case.raised("BRR802")
    assert found.where == (OTHER_LINE,) and "no graph at all" in found.message
    assert found.saving.expected_ns == pytest.approx(0.6 * 30 * MS)
    inside = replace(case.ops[0], parents=("Torch-Compiled Region: 0/0",))
    assert not Case(ops=(inside,), facts=case.facts).raised("BRR802")
    graphs = CompileFacts(used=True, num_graphs=1)
    assert not Case(ops=case.ops, facts=replace(case.facts, compile=graphs)).raised("BRR802")


def test_breaks_are_not_told_beside_a_limit_that_was_hit():
    case = compiled(graph_breaks=2, break_spans=(OTHER_LINE,), limit_hit=True)
    case.extra = {"host": (HostGroup(where=(OTHER_LINE,), ns=9 * MS),)}
    assert not case.raised("BRR802")


def test_the_limit_is_told_with_what_eager_pays():
    (found,) = compiled(limit_hit=True, recompiles=8).raised("BRR803")
    assert found.severity == "warning" and found.where == (LINE,)
    assert found.saving.expected_ns == pytest.approx((0.5 * 6 + 0.4 * 4 + 0.6 * 20) * MS)
    assert not compiled().raised("BRR803")


def test_the_limit_is_critical_where_much_could_be_fused():
    case = compiled(limit_hit=True)
    case.ops += (op("exp", (4096, 4096), ms=50),)
    assert case.raised("BRR803")[0].severity == "critical"


def test_without_a_known_call_the_costliest_line_is_shown():
    case = compiled(limit_hit=True)
    case.facts = Facts(compile=CompileFacts(used=True, limit_hit=True))
    assert case.raised("BRR803")[0].where == (LINE,)
    module = ModuleFacts(id=0, compiled=True, span=OTHER_LINE)
    case.facts = Facts(compile=case.facts.compile, modules=(module,))
    assert case.raised("BRR803")[0].where == (OTHER_LINE,)
