"""BRR901 to BRR908: doubts cost nothing, and only a verdict that cannot be trusted is critical."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gobrrr.capture.session.session import TRACED
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Account, OtherLoop, StepStats
from gobrrr.recording.model.facts import ChildFacts, CompileFacts, Facts, Settings
from gobrrr.rules import load
from gobrrr.rules.model.cores import starved
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import ALL_SIGNALS, MS, Case, machine
from tests.support.rule_lines import waiting, worker

DOUBTS = ("BRR901", "BRR902", "BRR903", "BRR904", "BRR905", "BRR906", "BRR907", "BRR908")


def doubts(case: Case) -> list[Finding]:
    found = [finding for code in DOUBTS for finding in load()[code].check(case.ledger, case.machine)]
    assert all(f.saving.ceiling_ns == 0 and f.advice and f.where == () for f in found)
    assert all(len(f.message.split()) <= 23 for f in found), "it goes into a headline of 25 words"
    return found


def step(**fields: Any) -> Case:
    return Case(step=StepStats(**{"count": 60, "plain_count": 50, "mean_ns": 100 * MS, **fields}))


def levels(case: Case) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in doubts(case)]


def test_a_good_measurement_raises_no_doubt():
    good = step(
        quartile_spread=0.05, drift=-0.02, low_ns=99 * MS, high_ns=101 * MS, wall_ns=150 * MS, profiled_count=5,
        overhead_share=0.002, outlier_ns=2 * MS,
    )  # fmt: skip
    good.facts = Facts(other_load=0.1)
    good.accounts = (Account("unattributed", 4 * MS, 0.04),)
    assert levels(good) == []


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (step(plain_count=0), ("BRR901", "critical")),
        (step(plain_count=2), ("BRR901", "critical")),
        (step(plain_count=19), ("BRR901", "note")),
        (step(seen_ns=25 * MS, process_cpu_ns=28e9), ("BRR901", "critical")),
        (step(quartile_spread=0.12), ("BRR902", "note")),
        (step(quartile_spread=0.30), ("BRR902", "warning")),
        (step(drift=-0.30), ("BRR902", "warning")),
        (step(profiled_count=8, beside_ns=60 * MS), ("BRR902", "warning")),
        (step(quartile_spread=0.9, low_ns=40 * MS, high_ns=150 * MS), ("BRR902", "critical")),
        (step(wall_ns=300 * MS, profiled_count=5), ("BRR903", "note")),
        (step(wall_ns=1500 * MS, profiled_count=5), ("BRR903", "warning")),
        (Case(signals=ALL_SIGNALS - {"samples"}), ("BRR904", "note")),
        (Case(signals=ALL_SIGNALS - {"ops", "shapes"}), ("BRR904", "warning")),
        (Case(facts=Facts(other_load=0.6)), ("BRR905", "note")),
        (Case(facts=Facts(other_load=1.2)), ("BRR905", "warning")),
        (Case(facts=Facts(process_load=1.0, waiting_load=0.15)), ("BRR905", "note")),
        (Case(facts=Facts(process_load=1.0, waiting_load=0.5)), ("BRR905", "warning")),
        (Case(facts=Facts(process_load=0.6, stolen_load=1.0, other_load=0.0)), ("BRR905", "warning")),
        (Case(extra={"missing": ("the program was cut short: its last moments are gone",)}), ("BRR906", "note")),
        (step(overhead_share=0.02), ("BRR907", "note")),
        (step(overhead_share=0.08), ("BRR907", "warning")),
        (step(overhead_share=0.08, low_ns=97 * MS, high_ns=103 * MS), ("BRR907", "note")),  # 3 % of it may be noise
        (step(overhead_share=0.03, overhead_low=0.011), ("BRR907", "note")),
        (step(lingering=0.11), ("BRR907", "note")),
        (step(attached=True), ("BRR907", "note")),
        (Case(accounts=(Account("unattributed", 15 * MS, 0.15),)), ("BRR908", "note")),
        (Case(accounts=(Account("unattributed", 30 * MS, 0.30),)), ("BRR908", "warning")),
        (step(outlier_ns=60 * MS, mean_ns=160 * MS), ("BRR908", "note")),
    ],
)
def test_each_doubt_at_its_threshold(case, expected):
    assert levels(case) == [expected]


@pytest.mark.parametrize(
    "case",
    [
        step(seen_ns=1.4e9, process_cpu_ns=28e9), step(seen_ns=25 * MS, process_cpu_ns=15e9),
        step(plain_count=20), step(quartile_spread=0.099), step(drift=0.099), step(wall_ns=199 * MS, profiled_count=5),
        Case(facts=Facts(other_load=0.49)), step(overhead_share=0.0099),
        step(overhead_share=0.06, low_ns=95 * MS, high_ns=105 * MS), step(overhead_share=0.05, overhead_low=0.0099),
        Case(ms=0.9, step=StepStats(count=60, plain_count=50, mean_ns=0.9 * MS, overhead_share=0.029)),
        step(outlier_ns=9.9 * MS, mean_ns=100 * MS),
        Case(accounts=(Account("unattributed", 9.9 * MS, 0.099),)),
    ],
)  # fmt: skip
def test_nothing_is_doubted_below_its_threshold(case):
    assert levels(case) == []


@pytest.mark.parametrize(
    "case",
    [
        step(quartile_spread=0.249), step(wall_ns=990 * MS, profiled_count=5), Case(facts=Facts(other_load=0.99)),
        step(overhead_share=0.049), step(overhead_share=0.09, overhead_low=0.049), step(plain_count=3),
        Case(accounts=(Account("unattributed", 24.9 * MS, 0.249),)),
    ],
)  # fmt: skip
def test_what_is_less_than_bad_is_a_note(case):
    assert [level for _, level in levels(case)] == ["note"]


@pytest.mark.parametrize(
    ("averaged", "on_device", "said"),
    [(False, False, "the median step does not show"), (False, True, "the median step does not show"),
     (True, False, "which the figures here do not show"), (True, True, "and are in every figure here")],
)  # fmt: skip
def test_rare_slow_steps_are_said_to_be_where_they_are(averaged, on_device, said):
    case = step(outlier_ns=60 * MS, mean_ns=160 * MS, averaged=averaged)
    if on_device:
        case.extra = {"device": DeviceLedger("gpu", 50 * MS, 50 * MS, 0.5)}
    (found,) = (each for each in doubts(case) if each.code == "BRR908")
    assert found.message.endswith(said)


def test_loops_that_no_report_names_are_not_looked_at():
    case = step(outlier_ns=60 * MS, mean_ns=160 * MS)
    for loops, named in (((), False), ((OtherLoop("forwards of Net", 0.3, 20),), True)):
        case.extra = {"loops": loops}
        (found,) = (each for each in doubts(case) if each.code == "BRR908")
        assert ("other loops" in found.advice) == named


@pytest.mark.parametrize(("waiting", "said"), [(0.5, "slow steps add"), (0.1, "steps that take longer and longer add")])
def test_what_waiting_for_cores_makes_long_has_no_other_cause(waiting: float, said: str):
    """Steps seem to grow, or to hold an evaluation, where others come and take the cores."""
    case = step(outlier_ns=40 * MS, mean_ns=140 * MS, plain_wall_ns=100 * MS, count=500, drift=0.9)
    case.facts = Facts(process_load=1.0, waiting_load=waiting)
    (found,) = (each for each in doubts(case) if each.code == "BRR908")
    assert found.message.startswith(said) and ("grows" in found.advice) == (waiting < 0.25)


@pytest.mark.parametrize(
    ("spread", "said"),
    [(0.3, "spans 30.0 % of the median, which is known to 5.0 % of it"),
     (8.836, "spans 8.8 times the median, which is known to 4.3 times it")],
)  # fmt: skip
def test_a_spread_beyond_the_median_is_told_in_times(spread, said):
    """ "883.6 %" read like a figure that cannot be."""
    width = 8.6 * 100 * MS if spread > 1 else 10 * MS
    (doubt,) = doubts(step(quartile_spread=spread, low_ns=40 * MS, high_ns=40 * MS + width))
    assert said in doubt.message


def test_a_profiled_window_that_never_came_has_no_overhead():
    assert levels(step(wall_ns=300 * MS, profiled_count=0)) == []


SPAWNED = ChildFacts(processes=2, cpu_ns=34_000_000_000, own_ns=9_000_000_000)


def spawned(kind: str = "inference", seen_ns: float = 2e9, compiles: bool = False, **changes: int) -> Case:
    case = step(kind=kind, seen_ns=seen_ns)
    children = msgspec.structs.replace(SPAWNED, **changes)
    case.facts = Facts(children=children, compile=CompileFacts(used=compiles))
    return case


def test_a_run_that_is_its_childrens_is_not_judged_by_its_own_steps():
    (found,) = doubts(spawned())
    assert (found.code, found.severity) == ("BRR904", "critical")
    assert (
        "child processes used 34.0 s of CPU time, the program itself 9.00 s" in found.message
        and "torchrun --nproc_per_node" in found.advice
    )


def test_the_doubt_about_children_comes_instead_of_the_one_that_knows_less():
    case = spawned(seen_ns=25 * MS)
    case.step = msgspec.structs.replace(case.step, process_cpu_ns=28e9)
    assert levels(case) == [("BRR904", "critical")]
    case.facts = Facts()
    assert levels(case) == [("BRR901", "critical")]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (spawned("training", seen_ns=3.4e9), ["warning"]),  # it may be one of the ranks
        (spawned("training", seen_ns=3.3e9), ["critical"]),
        (spawned(loaders_ns=25_000_000_000), []),
        (spawned(loaders_ns=24_900_000_000), ["critical"]),
        (spawned(loaders_ns=40_000_000_000), []),
        (spawned(own_ns=34_000_000_000), []),
        (spawned(processes=0), []),
        (spawned(compiles=True), []),
    ],
)  # fmt: skip
def test_workers_compilers_and_small_helpers_raise_no_doubt(case, expected):
    assert [level for _, level in levels(case)] == expected


def test_what_is_missing_is_named():
    (found,) = doubts(Case(signals=ALL_SIGNALS - {"shapes", "facts"}))
    assert found.evidence["missing"].value == "shapes, facts" and "FLOPs" in found.message


def test_a_drift_is_called_a_drift_and_a_spread_a_spread():
    assert "drift by 30.0 %" in doubts(step(drift=0.3, quartile_spread=0.2))[0].message
    assert "differ" in doubts(step(drift=0.1, quartile_spread=0.2))[0].message


def test_the_programs_own_workers_are_not_other_processes():
    case = waiting(1, num_workers=1, workers=(worker(95),), facts={"other_load": 1.0})
    assert levels(case) == []


def test_other_notes_of_the_recording_are_not_a_cut():
    assert levels(Case(extra={"missing": ("worker-3.json could not be read: no such file",)})) == []


FILE = (ALL_SIGNALS - {"ops", "shapes", "stacks"}) | {"offline", "unmarked", "device"}


@pytest.mark.parametrize(("ms", "level"), [(9.0, None), (11.0, "warning"), (49.0, "warning"), (51.0, "critical")])
def test_a_devices_start_up_is_told_from_a_tenth_of_the_recording_and_ends_all_from_half(ms: float, level: str | None):
    case = Case(
        ms=100.0, signals=FILE, extra={"device": DeviceLedger("GPU", 50 * MS, 50 * MS, 0.9, start_up_ns=ms * MS)}
    )
    told = [f for f in doubts(case) if f.code == "BRR901"]
    assert [f.severity for f in told if "start-up" in f.message] == ([level] if level else [])
    assert any("does not say where a step ends" in f.message for f in told) is (level != "critical")


def test_who_recorded_with_nsys_is_told_what_nsys_can_do():
    kineto, nsys = (doubts(Case(signals=signals)) for signals in (FILE, FILE | {"nsys"}))
    advice = [" ".join(f.advice for f in found) for found in (kineto, nsys)]
    assert "profiler.step()" in advice[0] and "profile(record_shapes=True, with_stack=True)" in advice[0]
    assert "nvtx" not in advice[0] and "profiler.step()" not in advice[1] and "profile(" not in advice[1]
    assert "torch.cuda.nvtx.range(" in advice[1] and "emit_nvtx" in advice[1]
    commands = [[f.evidence["command"].value for f in found if "command" in f.evidence] for found in (kineto, nsys)]
    assert commands == [["profile(activities=[CPU, CUDA], record_shapes=True, with_stack=True)"], []]


def test_an_empty_step_breaks_no_rule():
    assert levels(Case(ms=0.0, step=StepStats(), machine=machine(), signals=frozenset())) == [
        ("BRR901", "critical"), ("BRR904", "warning"),
    ]  # fmt: skip


def test_cores_are_those_that_the_program_may_use():
    pinned = Facts(other_load=0.9, process_load=1.0, settings=Settings(cores=1))
    (found,) = doubts(Case(facts=pinned))
    assert "0.9 of the 1 usable cores" in found.message and found.severity == "warning"


def test_steal_is_shared_with_those_who_ran_beside():
    alone, beside = (Facts(process_load=0.5, stolen_load=0.5, other_load=other) for other in (0.0, 0.49))
    assert starved(Case(facts=alone).ledger) == pytest.approx(0.5)
    assert starved(Case(facts=beside).ledger) == pytest.approx(0.335, abs=0.01)


def test_nothing_is_said_of_waiting_where_the_kernel_does_not_tell():
    assert starved(Case(facts=Facts(process_load=0.5)).ledger) is None


@pytest.mark.parametrize(
    ("missing", "advice"),
    [
        (TRACED, "Steps end inside torch.jit.trace; mark them outside of it: for batch in gobrrr.steps(loader)."),
        (
            "no profiled window: the program handles it itself, so SIGUSR2 asks for no look: name another",
            "The program handles it itself, so SIGUSR2 asks for no look: name another.",
        ),
        ("no profiled window: the program ended", "Let the program make more steps: the profiled ones come"),
    ],
)
def test_why_nothing_was_looked_at_closely_is_said_where_it_is_known(missing: str, advice: str):
    case = Case(accounts=(Account("unattributed", 100 * MS, 1.0),), signals=frozenset({"plain"}),
                extra={"missing": (missing,)})  # fmt: skip
    (found,) = load()["BRR908"].check(case.ledger, case.machine)
    assert found.advice.startswith(advice)


@pytest.mark.parametrize(("signals", "severity"), [({"plain", "ops"}, "warning"), ({"plain"}, "critical")])
def test_where_nothing_was_profiled_growth_explains_nothing(signals: set[str], severity: str):
    case = step(outlier_ns=70 * MS, mean_ns=170 * MS, plain_wall_ns=100 * MS, count=500, drift=0.9)
    case.signals, case.accounts = frozenset(signals), (Account("unattributed", 75 * MS, 0.75),)
    assert case.ledger.step.grown_ns > 0
    found = [each for each in load()["BRR908"].check(case.ledger, case.machine) if "unattributed" in each.message]
    assert [each.severity for each in found] == [severity]


@pytest.mark.parametrize(
    ("stalled", "severity"), [(9 * MS, None), (10 * MS, "note"), (44 * MS, "note"), (60 * MS, "critical")]
)
def test_a_device_that_did_not_begin_its_next_work_is_told_and_where_that_is_most_nothing_is_trusted(stalled, severity):
    accounts = (Account("stalled", stalled, stalled / (100 * MS)), Account("compute", 45 * MS, 0.45))
    idle = DeviceLedger("gpu", busy_ns=35 * MS, idle_ns=65 * MS, span_busy_share=0.35)
    found = Case(accounts=accounts, extra={"device": idle})
    assert [f.severity for f in load()["BRR911"].check(found.ledger, found.machine)] == [severity] * bool(severity)
    on_cpu = Case(accounts=accounts)
    assert not list(load()["BRR911"].check(on_cpu.ledger, on_cpu.machine))


def test_what_the_host_took_stands_behind_the_waiting():
    """The headline has room for what stands before a colon."""
    facts = Facts(process_load=0.6, stolen_load=1.0, other_load=0.0)
    (found,) = doubts(Case(facts=facts))
    assert found.message == "threads waited for a core 62.5 % of the time: the host took 1.0 cores"
    (found,) = doubts(Case(facts=msgspec.structs.replace(facts, other_load=1.2)))
    waited, _, why = found.message.partition(": ")
    assert waited.startswith("threads waited for a core ")
    assert why == "other processes kept 1.2 of the 2 usable cores busy, the host 1.0"
