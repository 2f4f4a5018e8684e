"""`make gpu` at its smallest size on a CPU: on the day of a device nothing but the device is new."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import ceilings, parts, planting, rows, table, traces, tunings
from benchmarks.gpu.plants import PLANTS, PROGRAMS, Plant
from benchmarks.gpu.setting import NO_DEVICE, Setting
from gobrrr.remedies import registry
from tests.planted.catalogue import MARK

torch = pytest.importorskip("torch")
BY_NAME = {plant.name: plant for plant in PLANTS}
OTHER_NUMBERS = {"off_by_one"}
"""Twins of another size: their losses are others."""


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own, and the environment that the programs read: what main() sets there is taken back."""
    monkeypatch.chdir(tmp_path)
    ours = {"DEVICE": "cpu", "TINY": "1", "HF_HUB_OFFLINE": "", "CUDA_VISIBLE_DEVICES": NO_DEVICE}
    theirs = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}  # packages may be found by it
    for name, value in {**ours, **theirs}.items():
        monkeypatch.setenv(name, value)


def part(number: int, *words: str) -> dict[str, Any]:
    """The result of a part at tiny size."""
    gpu.main(["--part", str(number), "--device", "cpu", "--tiny", *words])
    found: dict[str, Any] = json.loads(next(Path(".gobrrr/gpu").glob(f"gpu-{number}-*.json")).read_text())
    return found


# The planted programs


def test_there_are_enough_of_them_and_each_has_its_marks() -> None:
    assert len(PLANTS) >= 14 and {p.stem for p in PROGRAMS.glob("*.py")} == set(BY_NAME)
    for plant in PLANTS:
        marks = set(MARK.findall(plant.source("sick")))
        assert marks and marks <= set(plant.codes) and plant.guilty_lines()
        assert "gobrrr" not in plant.source("sick")


@pytest.mark.parametrize("name", BY_NAME)
def test_twins_run_and_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    losses = []
    before = torch.get_float32_matmul_precision()
    for who in ("sick", "healthy"):
        script = BY_NAME[name].script(who)
        monkeypatch.setattr(sys, "argv", [str(script), "--steps", "2"])
        runpy.run_path(str(script), run_name="__main__")
        told = re.search(r"step 0  (?:loss|class 0  recall) ([\d.]+)", capsys.readouterr().out)
        assert told
        losses.append(float(told[1]))
    torch.set_float32_matmul_precision(before)
    assert name in OTHER_NUMBERS or losses[1] == pytest.approx(losses[0], rel=2e-2)


def test_a_text_to_replace_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="is there 0 times"):
        Plant("sync_item", ("BRR501",), fix=(("no such text", ""),)).source("healthy")


# Rows within a budget


def test_rows_are_kept_left_out_and_gone_on_with(tmp_path: Path) -> None:
    done: list[str] = []

    def work(name: str, seconds: float) -> rows.Work:
        return rows.Work(name, seconds, lambda: done.append(name) or {"value": name})

    def broken() -> rows.Row:
        raise OSError("no disk")

    works = [work("short", 1), rows.Work("broken", 1, broken), work("long", 1000)]
    first = rows.through(works, tmp_path / "book", "A", 10, lambda line: None)
    assert [row.get("value") for row in first] == ["short", None, None]
    assert first[1]["failed"] == "OSError: no disk" and first[2]["left_out"].startswith("not run: ")
    second = rows.through(works, tmp_path / "book", "A", 2000, lambda line: None)
    assert done == ["short", "long"] and second[2]["value"] == "long" and second[1] == first[1]
    rows.through(works, tmp_path / "book", "B", 10, lambda line: None)
    assert done == ["short", "long", "short"], "another device makes them anew"
    rows.forget(tmp_path / "book", ["long"])
    rows.through(works, tmp_path / "book", "A", 2000, lambda line: None)
    assert done[3:] == ["long"]


def test_what_hangs_is_ended_and_the_next_has_its_turn(tmp_path: Path) -> None:
    works = [rows.Work("hangs", 0.05, lambda: time.sleep(60) or {}), rows.Work("next", 0.05, lambda: {"value": 1})]
    found = rows.through(works, tmp_path / "book", "A", 30, lambda line: None)
    assert found[0]["failed"].startswith("no end after") and found[1]["value"] == 1


def test_no_part_needs_more_than_its_nine_minutes() -> None:
    for number in parts.TITLES:
        assert sum(work.seconds for work in parts.works(number, Setting("cuda", False))) <= rows.BUDGET_S


# Figures by hand


def test_ceilings_are_held_against_the_sheet() -> None:
    def figure(value: float) -> dict[str, float]:
        return {"median": value}

    products = {"bf16": figure(7e14), "fp32": figure(7.5e13), "fp16": figure(1e14), "fp4": figure(1.0)}
    device = {"name": "NVIDIA H100 80GB HBM3", "copy": figure(2.8e12), "matmul": products}
    found = {row["name"]: row for row in ceilings.against_the_sheet({"device": device})}
    assert found["bf16"]["share"] == pytest.approx(7e14 / 989.4e12) and not found["bf16"]["doubt"]
    assert found["copy"]["sheet"] == 3350e9 and not found["copy"]["doubt"]
    assert found["fp32"]["doubt"] == "above the sheet" and found["fp16"]["doubt"] == "far below the sheet"
    assert found["fp4"]["share"] is None
    assert ceilings.against_the_sheet({"device": None}) == []


def test_busy_time_counts_what_overlaps_once_and_nothing_outside_the_steps() -> None:
    def event(cat: str, ts: float, dur: float, name: str = "k") -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "ts": ts, "dur": dur, "name": name}

    steps = [event("user_annotation", 100, 90, "ProfilerStep#1"), event("user_annotation", 200, 100, "ProfilerStep#2")]
    work = [event("kernel", 50, 60), event("gpu_memcpy", 120, 20), event("kernel", 130, 30), event("cpu_op", 0, 999)]
    assert traces.busy_share([*steps, *work]) == pytest.approx((10 + 40) / 200)
    assert traces.busy_share(steps) is None
    assert traces.step_ms(steps) == pytest.approx(0.1)


def test_every_guarded_remedy_is_one_and_has_its_program() -> None:
    for remedy, plant in tunings.REMEDIES:
        assert registry.remedy(remedy) and plant in BY_NAME


@pytest.mark.parametrize("name", tunings.PUBLISHED)
def test_models_run_without_transformers(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(sys, "path", [str(tunings.HERE), str(tunings.MODELS), *sys.path])
    monkeypatch.setattr(sys, "argv", [name, "--steps", "2"])
    runpy.run_path(str(tunings.HERE / f"{name}.py"), run_name="__main__")
    loss = float(re.findall(r"loss ([\d.]+)", capsys.readouterr().out)[0])
    assert loss == pytest.approx(math.log(1000), abs=0.3)
    for module in ("plain", "corpus"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("causal", [True, False])
def test_the_plain_model_learns_and_sees_what_it_may(causal: bool) -> None:
    torch.manual_seed(0)
    model = runpy.run_path(str(tunings.HERE / "plain.py"))["Language"](50, 8, 16, 2, 1, causal=causal)
    ids = torch.randint(0, 50, (4, 8))
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % 50
    seen, changed = (model.eval()(input_ids=each, labels=each)[1][:, :-1] for each in (ids, other))
    assert torch.equal(seen, changed) == causal
    optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-2)
    first = last = 0.0
    for step in range(60):
        optimizer.zero_grad()
        loss, _ = model(input_ids=ids, labels=ids)
        loss.backward()
        optimizer.step()
        first, last = (loss.item() if step == 0 else first), loss.item()
    assert last < first / 2


# Parts


def test_without_a_gpu_nothing_is_done(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 0
    assert "no GPU here" in capsys.readouterr().out and not Path(".gobrrr").exists()


def test_what_is_started_finds_packages_and_on_a_cpu_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    Setting("cuda", True).prepare()
    assert os.environ["PYTHONPATH"].split(os.pathsep)[-1] == "/somewhere"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    Setting("cpu", True).prepare()
    seen = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    assert subprocess.check_output([sys.executable, "-c", seen], text=True).split() == ["False", "0"]


@pytest.mark.slow  # measures for 20 s
def test_part_1_runs_the_tests_and_the_ceilings() -> None:
    machine, tests = part(1)["rows"]
    assert machine["machine"]["schema"] == "gobrrr.machine/1"
    assert len(tests["outcomes"]) >= 8 and set(tests["outcomes"].values()) <= {"passed", "skipped"}


@pytest.mark.slow
def test_a_planted_pair_goes_through_the_score(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(parts, "PLANTS", PLANTS[:2])
    monkeypatch.setattr(parts, "HALF", 1)
    (row,) = part(2)["rows"]
    assert row["name"] == "sync_item" and row["ratio"] > 0 and not row["counts"]
    assert row["told"]["sick"]["findings"] is not None and planting.watching(row)
    assert "not scored" in capsys.readouterr().out
    assert "sync_item" in table._planted({**row, "counts": True, "is_ill": True})[0]
    assert planting.bars([{**row, "counts": True, "is_ill": True}])["named"]["of"] == 1


def test_a_trace_that_was_written_here_is_read_back(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(traces, "NAMES", ("hand_made_attention",))
    share = dict.fromkeys(("median", "low", "high"), 0.01)
    monkeypatch.setattr(parts.watching, "cost", lambda *_: {"step_ns": 1, "cycles": 2, "cost": share})
    row = part(6)["rows"][0]
    # One file, two statistics: steps that others made long are in one and not in the other.
    assert 0.5 < row["step_ms"] / row["step_by_hand_ms"] < 2
    assert row["bytes"] > 10_000 and row["busy"] is None and row["busy_by_hand"] is None
    assert "by the clock" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("number", parts.TITLES)
def test_every_part_comes_to_its_end(number: int) -> None:
    for row in part(number)["rows"]:
        assert "left_out" not in row and "failed" not in row
