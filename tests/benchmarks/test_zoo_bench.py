"""The zoo's bench: its list, its arithmetic on rows made by hand, and one tiny program through all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.zoo import __main__ as zoo
from benchmarks.zoo import case as cases_room
from benchmarks.zoo import running, scoring, table, tuning
from benchmarks.zoo.case import Case
from benchmarks.zoo.cases import CASES

TINY = """import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    loss = model(torch.ones(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
"""
HIS = Case(
    "tiny", (), "training", "it is tiny", ("host",), ("BRR301",), ("loss.backward()",), (("range(60)", "range(20)"),)
)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "words.py").write_text("")
    monkeypatch.setattr(cases_room, "PROGRAMS", tmp_path)
    monkeypatch.setattr(running, "PROGRAMS", tmp_path)
    monkeypatch.setattr(zoo, "DONE", tmp_path / "done.jsonl")
    monkeypatch.setattr(zoo, "RESULTS", tmp_path)
    return HIS


def report(code: str = "BRR301", line: int = 7, count: int = 60, ceiling: float = 5.0, share: float = 1.0) -> Any:
    finding = {"code": code, "bound": "host", "severity": "warning", "where": [{"file": "/x/tiny.py", "line": line}],
               "saving": {"low_ns": 0, "expected_ns": 1, "ceiling_ns": ceiling}}  # fmt: skip
    return {
        "verdict": {"bound": "host", "sentence": "Host-bound."}, "ledger": [{"account": "host", "share": share}],
        "step": {"kind": "training", "count": count, "wall_ns": 10.0, "plain_wall_ns": 10.0},
        "findings": [{**finding, "code": "BRR902"}, finding], "roofline": {"mfu": 0.5},
    }  # fmt: skip


def row(told: str = "", **more: Any) -> Any:
    clock = {"steps": 60, "step_ms": 1.0, "phases": {"forward": 0.5}, "ops": [["aten::mm", 0.4]]}
    return {"name": "tiny", "kind": "run", "skipped": "", "exit_codes": [0, 0], "same_output": True, "told": told,
            "clock": clock, "report": report(**more)}  # fmt: skip


def test_thirty_programs_have_a_cause_a_line_and_a_fix_that_fits() -> None:
    assert len(CASES) >= 30 and len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        source = case.script.read_text(encoding="utf-8")
        assert case.cause and (case.bounds or case.codes)
        assert all(text in source for text in case.lines), case.name
        compile(case.mended(), case.name, "exec")
    files = {file.stem for file in cases_room.PROGRAMS.glob("*.py")}
    assert files == {case.name for case in CASES} | {"words"}


def test_a_right_report_misses_nothing(tiny: Case) -> None:
    assert all(scoring.score(tiny, row()).values())
    assert scoring.absurd(row("the middle half spans 208.8 % of the median")) == []


def test_each_bar_can_be_missed(tiny: Case) -> None:
    wrong = {
        "loop": row(count=40), "headline": row(code="BRR102"), "line": row(line=1), "sane": row(share=1.2),
        "same": {**row(), "same_output": False}, "whole": row("Traceback (most recent call last)"),
    }  # fmt: skip
    for bar, seen in wrong.items():
        assert [name for name, held in scoring.score(tiny, seen).items() if not held] == [bar]
    assert not scoring.score(tiny, {**row(), "exit_codes": [0, 1]})["same"]
    assert not any(scoring.score(tiny, {**row(), "report": None})[bar] for bar in ("loop", "headline", "line", "whole"))


def test_figures_that_cannot_be_are_found(tiny: Case) -> None:
    assert scoring.absurd(row("holds 1.62 s (116.9 %) of the 1.38 s step")) == ["116.9 % in the text"]
    assert scoring.absurd(row(ceiling=11.0)) == ["BRR902 saves 1.10 of the step", "BRR301 saves 1.10 of the step"]
    over = row()
    over["report"]["roofline"]["mfu"] = 4.95
    assert scoring.absurd(over) == ["mfu 4.95"]
    over["report"]["findings"][1]["saving"]["low_ns"] = -1
    assert any("saves -1 ns" in each for each in scoring.absurd(over))


def test_without_a_finding_the_verdict_counts(tiny: Case) -> None:
    seen = row()
    seen["report"]["findings"] = []
    assert scoring.score(tiny, seen)["headline"] and not scoring.score(tiny, seen)["line"]
    seen["report"]["verdict"] = {"bound": "balanced", "sentence": "Balanced: tiny.py:7 holds most."}
    assert not scoring.score(tiny, seen)["headline"] and scoring.score(tiny, seen)["line"]


def test_the_verdict_counts_where_the_finding_is_not_what_it_says(tiny: Case) -> None:
    seen = row(code="BRR102")
    first = seen["report"]["findings"][1]
    for change in ({"severity": "note"}, {"bound": "compute"}):  # beside it, or overshadowed
        first.update(change)
        assert scoring.true_headline(tiny, seen["report"])
        assert not scoring.true_headline(tiny._replace(bounds=("data",)), seen["report"])
        first.update(severity="warning", bound="host")
    assert not scoring.true_headline(tiny, seen["report"])


def test_what_was_measured_to_bring_more_than_the_experts_fix_is_right(tiny: Case) -> None:
    case, seen = tiny._replace(codes=("BRR102",), bounds=("compute",)), row(code="BRR112")
    bf16, masks = {"bf16_autocast": [-0.4, -0.3]}, {"packed_masks": [0.05, 0.1]}
    assert not scoring.score(case, seen)["headline"] and scoring.score(case, seen)["line"]
    for more in (bf16, {"by hand": [0.04, 0.04]}):
        scores = scoring.score(case, seen, masks | more)
        assert scores["headline"] and scores["line"] is None
    nothing, either = {"packed_masks": [-0.01, 0.1]}, {"bf16_autocast": [0.01, 0.06]}
    for here in (bf16, masks, bf16 | nothing, masks | either, masks | bf16 | {"by hand": [0.2, 0.2]}):
        assert not scoring.score(case, seen, here)["headline"]


def test_what_was_measured_is_taken_from_the_sweeps_a_tuning_and_the_edit(tmp_path: Path) -> None:
    pair = {"remedy": "packed_masks", "step_ns": 200.0, "realised_interval_ns": [-10.0, 20.0]}
    alone = {"bucketing": {"speedup": [1.5, 1.25, 2.0]}, "compile": {"speedup": None, "why": "too slow"},
             "malloc_thresholds": {"speedup": [1.0, 0.8, 1.25]}}  # fmt: skip
    seen = {"programs": {"tiny": {"picks": {}, "pairs": [pair]}, "alone": {"picks": alone, "pairs": []}}}
    (tmp_path / "picks.json").write_text(json.dumps(seen))
    picks, others = tuning.picked(tmp_path / "picks.json")
    assert picks["gains"] == {"packed_masks": [-0.05, 0.1]}
    assert others["gains"] == {"bucketing": pytest.approx([0.2, 0.5]), "malloc_thresholds": pytest.approx([-0.25, 0.2])}
    assert others["picks"] == {"malloc_thresholds": 1.0}, "the best pick is of those that people pick"
    tune = {"speedup": [1.5, 1.25, 2.0], "kept": ["bucketing"]}
    assert table._here({"saved": 0.3}, tune, picks) == {
        "packed_masks": [-0.05, 0.1], "bucketing": pytest.approx([0.2, 0.5]), "by hand": [0.3, 0.3]
    }  # fmt: skip
    assert table._here({"saved": None}, {"speedup": None, "kept": []}, None) == {}
    alone = {"speedup": [1.5, 1.25, 2.0], "kept": ["packed_masks"]}
    assert table._here(None, alone, picks) == picks["gains"], "played alone is better known"
    both = {"speedup": [1.5, 1.25, 2.0], "kept": ["bucketing", "malloc_thresholds"]}
    assert table._here(None, both, None) == {}, "nobody knows which of the two it was"


def test_what_lies_between_steps_is_held_against_the_loop_as_the_clock_has_it(tiny: Case) -> None:
    seen = row(ceiling=25.0)
    seen["clock"]["loop_s"] = 60 * 30e-9
    for each in seen["report"]["findings"]:
        each["between"] = True
    assert scoring.absurd(seen) == []
    seen["clock"]["loop_s"] = 60 * 20e-9
    assert scoring.absurd(seen) == ["BRR902 saves 1.25 of the step", "BRR301 saves 1.25 of the step"]


def test_what_the_peer_says_is_counted(tiny: Case) -> None:
    said = {"peer": "1.0", "said": "INPUT_BOUND", "right_phase": True}
    rows = [{"name": "tiny", "kind": "peer", "skipped": "", **said}]
    found = table.summary([tiny], rows)
    text = table.table({**found, "date": "", "cpu": "", "cores": 2, "load": 0, "python": "", "torch": "", "gobrrr": ""})
    assert "| INPUT_BOUND |" in text and "TraceML 1.0 names the phase of the expert's cause in 1 of 1" in text
    assert table._peer({"failed": "it left"}) == "none" and table._peer({**said, "right_phase": False}).endswith(
        "phase"
    )


def test_a_missing_library_is_skipped_and_said(tiny: Case, capsys: pytest.CaptureFixture[str]) -> None:
    zoo.main(["--run"], [tiny._replace(needs=("no_such_library",))])
    assert "skipped: it needs no_such_library" in capsys.readouterr().out


def test_tunings_are_held_against_the_best_single_remedy() -> None:
    tune = {"speedup": [1.6, 1.5, 1.7], "kept": ["compile"]}
    program = {"tune": tune, "picks": {"compile": 1.2, "bf16_autocast": 2.0}}
    unpicked = {"tune": tune, "picks": None}
    for there, met in ((2, True), (3, False)):  # a mean over some of them meets nothing
        values = {name: bar["met"] for name, bar in table._tuned_bars([program, unpicked], there).items()}
        assert list(values.values()) == [met, False]
    assert table._tuned(tune, program["picks"]) == ("1.60 (1.50 to 1.70) compile", "2.00 bf16_autocast")
    assert table._tuned({"speedup": None, "kept": [], "cores": 2}, {}) == ("nothing kept (2 cores)", "")
    nothing = {"speedup": None, "kept": [], "cores": 4, "minutes": 10.0}
    assert table._tuned(nothing, {}) == ("nothing kept (4 cores, 10 min)", "")


@pytest.mark.slow
def test_the_reach_is_the_better_of_tune_and_the_edit_by_hand() -> None:
    tuned, edited, worse, lone = (
        {"tune": {"speedup": gain, "kept": []}, "truth": truth}
        for gain, truth in (([2.0], {"saved": 0.2}), (None, {"saved": 0.75}), (None, {"saved": -0.5}), ([0.9], None))
    )
    unasked = {"tune": None, "truth": {"saved": 0.9}}
    assert table.reach([tuned, edited, worse, lone, unasked]) == pytest.approx((2.0 * 4.0) ** 0.25)
    assert table.reach([unasked]) is None


@pytest.mark.slow
def test_a_tiny_program_goes_through_all_of_it_once(tiny: Case, capsys: pytest.CaptureFixture[str]) -> None:
    zoo.main(["--truth", "--run"], [tiny])
    done = [json.loads(line) for line in zoo.DONE.read_text().splitlines()]
    assert [each["kind"] for each in done] == ["truth", "run"]
    assert len(done[0]["ratios"]) == 1 and done[0]["saved"] == 1 - done[0]["ratios"][0]
    assert done[1]["same_output"] and done[1]["exit_codes"] == [0, 0] and done[1]["clock"]["steps"] == 60
    assert scoring.right_loop(tiny, done[1])
    zoo.main(["--truth", "--run"], [tiny])
    assert len(zoo.DONE.read_text().splitlines()) == 2
    assert "| tiny | 60 x " in capsys.readouterr().out
    assert len(list(zoo.RESULTS.glob("zoo-*"))) == 2


def test_single_picks_come_from_the_sweeps_of_the_rehearsal_bench(
    tiny: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tuning of 1.2 beside a fused update of 1.3 is 0.92 of it; what could not be measured is no pick."""
    monkeypatch.setattr(zoo, "DONE", tmp_path / "done.jsonl")
    monkeypatch.setattr(zoo, "RESULTS", tmp_path)
    tuned = {"name": tiny.name, "kind": "tune", "skipped": "", "speedup": [1.2, 1.1, 1.3], "kept": ["compile"]}
    (tmp_path / "done.jsonl").write_text(json.dumps(tuned) + "\n")
    picks = {"fused_optimizer": {"speedup": [1.3, 1.2, 1.4]}, "bf16_autocast": {"speedup": None, "why": "it died"}}
    (tmp_path / "picks.json").write_text(json.dumps({"programs": {tiny.name: {"picks": picks}}}))
    zoo.main(["--table", "--picks", str(tmp_path / "picks.json"), "--out", "xeon", "--only", tiny.name], [tiny])
    told = capsys.readouterr().out
    assert "1.30 fused_optimizer" in told and "headline" not in told and "no report" not in told, "nothing ran"
    (share,) = [
        b["value"] for t, b in json.loads((tmp_path / "xeon.json").read_text())["bars"].items() if "single" in t
    ]
    assert share == pytest.approx(1.2 / 1.3)
