"""Building a report: order of findings, what is kept, and that nothing depends on anything but the input."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Account, Ledger, StepStats
from gobrrr.recording.model.facts import Facts, ModuleFacts, OptimizerFacts, SavedTensor, Span
from gobrrr.report.forms.json import to_json
from gobrrr.report.text.report import brief
from gobrrr.rules.model import finding as rules
from gobrrr.rules.model.finding import Rule
from gobrrr.rules.verdict.build import NUM_SAVED, build, describe
from tests.support import report_samples as samples

MS = samples.MS


def test_findings_by_expected_saving_then_doubts() -> None:
    codes = [f.code for f in samples.starved().findings]
    assert codes == ["BRR401", "BRR305", "BRR304", "BRR201", "BRR205", "BRR310", "BRR205", "BRR902"]


def test_a_doubt_that_decides_comes_first() -> None:
    assert [f.code for f in samples.unreliable().findings] == ["BRR902", "BRR401"]


def test_order_of_findings_does_not_depend_on_order_of_rules() -> None:
    tied = [samples.finding(code, 5.0) for code in ("BRR301", "BRR201", "BRR101")]
    one, other = (build(samples.starved_ledger(), None, found) for found in (tied, tied[::-1]))
    assert to_json(one) == to_json(other)


def test_same_input_same_bytes() -> None:
    assert to_json(samples.starved()) == to_json(samples.starved())
    shuffled = samples.starved(versions={"python": "3.11.7", "torch": "2.13.0"}, skipped=(
        ("BRR801", "torch.compile is not used"), ("BRR602", "memory was not recorded")))  # fmt: skip
    assert to_json(shuffled) == to_json(samples.starved())


def test_unattributed_is_always_said() -> None:
    ledger = Ledger(step=samples.step(100.0), accounts=(Account("host", 60 * MS, 0.6),))
    last = build(ledger, None, []).ledger[-1]
    assert (last.account, last.ns, last.share) == ("unattributed", pytest.approx(40 * MS), pytest.approx(0.4))


def test_accounts_sum_to_the_step() -> None:
    report = samples.starved()
    assert sum(a.share for a in report.ledger) == pytest.approx(1.0)
    assert sum(a.ns for a in report.ledger) == pytest.approx(report.step.plain_wall_ns)


def test_portability_findings_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.REGISTRY, "BRR501", Rule("BRR501", "item", "sync", lambda *_: (), portability=True))
    found = [samples.finding("BRR501", 0.0)]
    assert not build(samples.starved_ledger(), None, found).findings
    assert build(samples.starved_ledger(), None, found, portability=True).findings


def test_profiler_overhead_is_derived() -> None:
    assert build(samples.starved_ledger(), None, []).profiler_overhead_share == pytest.approx(0.42)


def test_only_the_largest_savers_are_kept() -> None:
    saved = tuple(SavedTensor(str(i), "aten::mul", i, 1) for i in range(30))
    kept = build(samples.starved_ledger(facts=Facts(saved=saved)), None, []).saved
    assert [s.num_bytes for s in kept] == list(range(29, 29 - NUM_SAVED, -1))


def test_device_busy_is_a_share_of_the_step() -> None:
    device = DeviceLedger("GPU", busy_ns=31 * MS, idle_ns=31 * MS, span_busy_share=0.8)
    seen = build(samples.starved_ledger(device=device), None, []).device
    assert seen is not None
    assert (seen.busy_share, seen.span.busy_share) == (pytest.approx(0.5), 0.8)


def test_a_run_without_steps_is_a_report_too() -> None:
    report = build(Ledger(step=StepStats()), None, [])
    assert report.verdict.bound == "unreliable"
    assert report.ledger == ()


def test_a_saving_that_is_not_a_number_ranks_last() -> None:
    broken = samples.finding("BRR101", float("nan"))
    found = build(samples.starved_ledger(), None, [broken, samples.finding()]).findings
    assert [f.code for f in found] == ["BRR401", "BRR101"]


def test_the_machine_in_one_line() -> None:
    assert describe(samples.machine()) == "Example CPU, 4 cores (2.0 effective), 16.0 GiB"


def test_what_a_step_holds_is_told_where_it_is_more_than_one_of_anything() -> None:
    optimizers = tuple(OptimizerFacts(n, "Adam", span=Span("gan.py", 170 + n)) for n in (0, 1))
    book = replace(samples.starved_ledger(), facts=Facts(optimizers=optimizers))

    def holds(**fields: object) -> tuple[tuple[str, int], ...]:
        return build(replace(book, step=replace(book.step, **fields)), None, []).step.holds

    assert holds(batches=1, backwards=1, updates=((0, 1),)) == ()
    assert holds(batches=4, backwards=4, updates=((0, 1),)) == (
        ("batch", 4), ("update of Adam", 1), ("backward pass", 4))  # fmt: skip
    assert holds(batches=5, updates=((0, 5), (1, 1))) == (
        ("batch", 5), ("update of Adam at gan.py:170", 5), ("update of Adam at gan.py:171", 1))  # fmt: skip
    twice = tuple(replace(optimizer, span=Span("pyro.py", 21)) for optimizer in optimizers)
    book = replace(book, facts=Facts(optimizers=twice))
    assert holds(batches=1, updates=((0, 1), (1, 1))) == (("batch", 1), ("update of Adam at pyro.py:21", 2))


def test_the_step_line_says_what_it_holds() -> None:
    report = samples.starved()
    holds = (("batch", 5), ("update of Adam at gan.py:171", 1), ("backward pass", 11))
    told = replace(report, step=replace(report.step, holds=holds))
    assert "a step is 5 batches, 1 update of Adam at gan.py:171, 11 backward passes" in brief(told)
    assert "a step is" not in brief(report)


FUSED, PLAIN = (OptimizerFacts(0, "AdamW", fused=fused, supports_fused=True) for fused in (True, None))


@pytest.mark.parametrize(
    ("optimizers", "fusable"),
    [((), None), ((FUSED,), False), ((OptimizerFacts(0, "LBFGS"),), False), ((PLAIN,), True), ((FUSED, PLAIN), True)],
)
def test_whether_an_optimizer_leaves_its_fused_kernel_unused(
    optimizers: tuple[OptimizerFacts, ...], fusable: bool | None
) -> None:
    ledger = replace(samples.starved_ledger(), facts=Facts(optimizers=optimizers), signals=frozenset({"ops"}))
    assert build(ledger, None, []).fusable is fusable
    watched = replace(ledger, signals=frozenset({"ops", "facts"}))
    assert build(watched, None, []).fusable is (fusable or False), "weights that the program changes by hand"


@pytest.mark.parametrize(("modules", "compiled"), [
    ((), False), ((ModuleFacts(0, num_params=9, compiled=True), ModuleFacts(1)), True),
    ((ModuleFacts(0, num_params=9, compiled=True), ModuleFacts(1, num_params=9)), False),
])  # fmt: skip
def test_whether_a_program_compiles_itself(modules: tuple[ModuleFacts, ...], compiled: bool) -> None:
    assert build(replace(samples.starved_ledger(), facts=Facts(modules=modules)), None, []).compiled is compiled


@pytest.mark.parametrize(
    ("code", "signals", "severity"),
    [("BRR901", {"offline"}, "note"), ("BRR901", set(), "critical"), ("BRR910", set(), "note")],
)
def test_no_verdict_on_a_file_or_on_what_cannot_be_has_a_loud_finding(
    code: str, signals: set[str], severity: str
) -> None:
    doubt = samples.finding(code)
    loud = msgspec.structs.replace(samples.finding(), severity="critical")
    ledger = samples.starved_ledger(signals=frozenset(signals))
    report = build(ledger, None, [loud, msgspec.structs.replace(doubt, severity="critical", bound="unreliable")])
    assert report.verdict.bound == "unreliable"
    assert {f.code: f.severity for f in report.findings} == {"BRR401": severity, code: "critical"}


def test_an_op_says_the_shapes_that_take_most_of_its_time() -> None:
    from gobrrr.rules.verdict.build import MAX_SHAPES
    from tests.support.handmade import op

    ops = (op("aten::mm", (2, 2), (2, 2), ms=1.0), op("aten::mm", (32, 512), (), (512, 8), ms=5.0),
           op("aten::cat", *[(1, 1)] * 99, ms=0.5))  # fmt: skip
    ledger = Ledger(step=StepStats(plain_wall_ns=10e6, plain_count=5), ops=ops)
    mm, cat = build(ledger, None, ()).ops
    assert mm.shapes == "32x512, 512x8" and len(cat.shapes) == MAX_SHAPES
