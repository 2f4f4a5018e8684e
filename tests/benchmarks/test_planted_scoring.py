"""The planted bench's arithmetic, on reports made by hand."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from benchmarks import planted, planted_scoring
from benchmarks.planted_peers import RIGHT_PHASE, read_summary
from benchmarks.planted_table import bars, markdown
from benchmarks.planted_truth import Timing, Truth, read_rows
from tests.planted.catalogue import BY_NAME, CATALOGUE, HERE, MARK, Illness


def found(
    code: str, line: int = 10, *, severity: str = "warning", file: str = "planted/x/sick.py", **saving: float
) -> dict[str, Any]:
    """One finding of a report; savings in ns."""
    promised = {"low_ns": 10.0, "expected_ns": 20.0, "ceiling_ns": 30.0, **saving}
    where = [{"file": file, "line": line, "function": "f"}] if line else []
    return {"code": code, "severity": severity, "saving": promised, "where": where}


def report(*findings: dict[str, Any]) -> dict[str, Any]:
    """A report with these findings in this order."""
    return {"findings": list(findings)}


def judge(*findings: dict[str, Any], saving_ns: float = 20.0, **more: Any) -> planted_scoring.Sick:
    """The score where BRR405 or BRR402 on line 10 is right."""
    return planted_scoring.judge_sick(report(*findings), ("BRR405", "BRR402"), {10}, saving_ns=saving_ns, **more)


def test_a_perfect_report_is_named_placed_and_inside():
    score = judge(found("BRR405"))
    assert (score.named, score.exact, score.placed, score.saving_inside) == (True, True, True, True)


def test_an_accepted_code_is_named_and_not_exact():
    score = judge(found("BRR402"))
    assert score.named and not score.exact


def test_doubts_about_the_measurement_do_not_take_the_first_place():
    assert judge(found("BRR905", 0), found("BRR405")).named


def test_only_the_first_finding_names():
    score = judge(found("BRR208", 40), found("BRR405"))
    assert not score.named and not score.placed
    assert score.saving_inside, "the saving is that of the finding that names the illness, wherever it stands"


@pytest.mark.parametrize(("line", "near"), [(7, True), (13, True), (6, False), (14, False), (0, False)])
def test_a_place_may_miss_by_three_lines(line: int, near: bool):
    assert judge(found("BRR405", line)).placed is near


def test_a_place_in_another_file_is_not_the_place():
    assert not judge(found("BRR405", file="torch/utils/data/dataloader.py")).placed


@pytest.mark.parametrize(("true", "inside"), [(10, True), (30, True), (9.9, False), (30.1, False), (-5, False)])
def test_the_saving_lies_between_low_and_ceiling(true: float, inside: bool):
    assert judge(found("BRR405"), saving_ns=true).saving_inside is inside


def test_the_saving_is_taken_of_the_step_in_the_run_that_promised():
    told = {**report(), "step": {"plain_wall_ns": 80, "outlier_ns": 20}}
    assert planted_scoring.saving_here(told, 120, 60, "median") == 40
    assert planted_scoring.saving_here(told, 120, 60, "mean") == 50
    assert planted_scoring.saving_here(None, 120, 60, "median") == 60


def test_no_report_scores_nothing():
    score = planted_scoring.judge_sick(None, ("BRR405",), {10}, saving_ns=1.0)
    assert (score.top, score.named, score.placed, score.saving_inside, score.saving) == ("", False, False, False, None)
    assert planted_scoring.judge_healthy(None) == ()


@pytest.mark.parametrize(
    ("told", "agrees"), [(100, True), (200, True), (51, True), (201, False), (49, False), (0, False)]
)
def test_a_memory_illness_is_judged_by_its_bytes(told: int, agrees: bool):
    finding = {**found("BRR405"), "cost_bytes": told}
    assert judge(finding, saving_ns=-1.0, growth_bytes=100.0).saving_inside is agrees


def test_a_healthy_twin_is_blamed_for_loud_findings_only():
    told = report(found("BRR902"), found("BRR208", severity="note"), found("BRR301", severity="critical"))
    assert planted_scoring.judge_healthy(told) == ("BRR301",)


def test_what_this_machine_makes_true_is_not_false():
    told = report(found("BRR102"), found("BRR201"))
    assert planted_scoring.judge_healthy(told, {"BRR102"}) == ("BRR201",)


def test_bars_hold_from_both_sides():
    assert planted_scoring.meets("named", 0.95) and not planted_scoring.meets("named", 0.949)
    assert planted_scoring.meets("false_findings", 0.02) and not planted_scoring.meets("false_findings", 0.021)
    assert not planted_scoring.meets("named", None)
    assert planted_scoring.share([]) is None and planted_scoring.share([True, False]) == 0.5


def test_rows_of_the_clock_become_figures_per_step():
    rows = [[k * 100 if k > 5 else k, k * 3, k * 4096, k * 50, k * 25] for k in range(40)]
    timing = read_rows({"rows": rows, "start_ns": 0, "end_ns": 4_000_000_000})
    assert (timing.median_ns, timing.mean_ns, timing.num_steps) == (100, 100, 31)
    assert (timing.faults_per_step, timing.growth_bytes_per_step) == (3, 4096)
    assert (timing.cores, timing.quartile_spread, timing.wall_s) == (0.5, 0, 4.0)


def test_too_few_steps_are_refused():
    with pytest.raises(RuntimeError, match="only 7 steps"):
        read_rows({"rows": [[k, 0, 0, k, 0] for k in range(7)], "start_ns": 0, "end_ns": 1})


def timed(median_ns: float, others: float | None) -> Timing:
    """A run with this median, beside which others used this share of the cores."""
    return Timing(50, median_ns, 2 * median_ns, 0.0, 0.0, median_ns, 1.0, 1.0, others=others)


def test_disturbed_runs_count_only_where_there_is_no_calm_one():
    truth = Truth(BY_NAME["item_by_item"], [timed(30, 0.5), timed(20, 0.05)], [timed(10, 0.9), timed(14, 0.4)])
    assert (truth.step_ns("sick"), truth.step_ns("healthy"), truth.growth_bytes("sick")) == (20, 12, 20)
    assert not truth.calm
    truth.healthy.append(timed(5, None))
    assert truth.calm and (truth.ratio, truth.saving_ns, truth.is_ill) == (4, 15, True)


def test_an_illness_of_few_steps_is_judged_by_the_mean():
    truth = Truth(BY_NAME["workers_each_epoch"], [timed(26, None)], [timed(20, None)])
    assert (truth.step_ns("sick"), truth.ratio, truth.is_ill) == (52, 1.3, True)


def entry(name: str = "x", **changes: Any) -> dict[str, Any]:
    """One examined illness, as the bench keeps it."""
    score = {
        "named": True,
        "placed": True,
        "saving_inside": True,
        "top": "BRR101",
        "line": 3,
        "saving": (1.0, 2.0, 3.0),
    }
    return {
        "name": name, "code": "BRR101", "codes": ("BRR101",), "statistic": "median", "conditional": "",
        "bytes_illness": False, "sick_ns": 3e6, "healthy_ns": 1e6, "ratio": 3.0, "saving_ns": 2e6, "growth_bytes": 0.0,
        "is_ill": True, "calm": True, "sick": score, "false_sick": [], "loud_healthy": [],
        "saving_here_ns": 2e6, "inside_as_measured": True, **changes,
    }  # fmt: skip


def test_an_illness_that_is_none_here_is_asked_for_silence_alone():
    silent = entry(is_ill=False, ratio=1.0, conditional="needs AMX")
    loud = entry("y", is_ill=False, ratio=1.0, conditional="needs AMX", false_sick=["BRR101"])
    result = planted.summarise([entry(), silent, loud], [])
    assert result["counts"]["named"] == 1 and result["counts"]["false_findings"] == 5
    assert result["shares"]["false_findings"] == pytest.approx(1 / 5)


def test_a_condition_that_holds_here_is_true_of_every_twin():
    condition = entry(conditional="bf16 is faster", codes=("BRR102",))
    twin = entry("twin", loud_healthy=["BRR102", "BRR208"])
    result = planted.summarise([condition, twin], [])
    assert result["true_here"] == ["BRR102"] and twin["false_healthy"] == ["BRR208"]


def test_a_twin_that_waits_by_the_clock_is_told_so_rightly():
    waits, computes = (entry(name, loud_healthy=["BRR401", "BRR201"], twin_waits=share)
                       for name, share in (("waits", 0.2), ("computes", 0.05)))  # fmt: skip
    planted.summarise([waits, computes], [])
    assert waits["false_healthy"] == ["BRR201"] and computes["false_healthy"] == ["BRR401", "BRR201"]
    waits["sick"] = {**waits["sick"], "saving": (0.0, 3e6, 9e6)}
    assert planted.summarise([waits], [])["expected_error"] == pytest.approx(0.5)
    only = entry("only", loud_healthy=["BRR401"], twin_waits=0.2)
    assert "waits 20%: BRR401" in planted.markdown({**planted.summarise([only], []), "date": "d"})


def test_the_table_shows_every_entry_and_every_bar():
    failed = {**entry("broken"), "error": "left with 1"}
    del failed["sick"]
    result = planted.summarise(
        [entry(), entry("memory", bytes_illness=True), entry("none", is_ill=False), failed], ["a note"]
    )
    text = markdown(result)
    assert all(name in text for name in ("| x |", "| memory |", "| none |", "| broken |", "a note"))
    assert len(bars(result)) == 4 and "MISSED" not in "\n".join(bars(result))


def test_a_peer_is_read_generously():
    right = RIGHT_PHASE[BY_NAME["item_by_item"].code[3]]
    assert read_summary({"primary_diagnosis": {"kind": "INPUT_BOUND", "summary": "s"}}, right).right_phase
    assert not read_summary({"primary_diagnosis": {"kind": "COMPUTE_BOUND", "summary": "s"}}, right).right_phase
    assert read_summary({}, right).kind == "none"


def test_the_catalogue_has_enough_illnesses_and_every_folder():
    assert len(CATALOGUE) >= 32
    assert len({code for illness in CATALOGUE for code in illness.codes[:1]}) >= 32
    folders = {path.parent.name for path in HERE.glob("*/sick.py")}
    assert folders == set(BY_NAME)


@pytest.mark.parametrize("illness", CATALOGUE, ids=lambda illness: illness.name)
def test_programs_are_marked_parse_and_know_nothing_of_us(illness: Illness):
    sick, healthy = (illness.script(who).read_text() for who in ("sick", "healthy"))
    assert set(MARK.findall(sick)) == {illness.code}
    assert not MARK.findall(healthy) and "gobrrr" not in sick + healthy
    assert illness.guilty_lines()
    ast.parse(sick), ast.parse(healthy)
    assert ("optim" in sick) == (illness.kind == "training")
    ours, theirs = set(MARK.sub("", sick).split("\n")), set(healthy.split("\n"))
    changed = len({line.rstrip() for line in ours} ^ {line.rstrip() for line in theirs})
    assert 0 < changed <= 20, (
        "a twin differs in the mended lines only; a class that torch has goes with all of its lines"
    )
