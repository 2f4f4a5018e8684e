"""`make gpu` at its smallest size on a CPU: on the day of a device nothing but the device is new."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import ceilings, chip, ddp, parts, planting, rows, scoreboard, traces, tunings, twelve
from benchmarks.gpu.plants import PLANTS, PROGRAMS, Plant
from benchmarks.gpu.setting import NO_DEVICE, ROOT, Setting
from benchmarks.planted_truth import Timing
from gobrrr.remedies import registry
from gobrrr.rules.model.finding import Saving
from gobrrr.trial.receipt.receipt import TrialResult
from tests.planted.catalogue import MARK

torch = pytest.importorskip("torch")
BY_NAME = {plant.name: plant for plant in PLANTS}
TINY = Setting("cpu", True)
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


# The twelve ordinary programs


def test_there_are_twelve_each_with_its_marks_and_cures(tmp_path: Path) -> None:
    assert len(twelve.TWELVE) == 12 and not {each.name for each in twelve.TWELVE} & set(BY_NAME)
    for each in twelve.TWELVE:
        marks = set(MARK.findall(each.source("sick")))
        assert marks and marks <= set(each.codes)
        for fix in (each.fix, *(other[3] for other in each.others)):
            compile(each.mended(fix), each.name, "exec")
        fp32 = each.put(tmp_path / each.name, "fp32").read_text()
        assert "set_float32" not in fp32 and compile(fp32, each.name, "exec")
    assert sorted(name for group in parts.TUNED for name in group) == sorted(each.name for each in twelve.TWELVE)


@pytest.mark.parametrize("name", twelve.BY_NAME)
def test_ill_and_mended_programs_run_without_libraries(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for library in ("transformers", "torchvision"):
        monkeypatch.setitem(sys.modules, library, None)
    before, losses = torch.get_float32_matmul_precision(), []
    for who in ("sick", "mended"):
        script = twelve.BY_NAME[name].put(tmp_path / who, who)
        monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
        monkeypatch.setattr(sys, "argv", [name, "--steps", "2"])
        runpy.run_path(str(script), run_name="__main__")
        losses.append(planting.losses_of(capsys.readouterr().out)[0])
        for module in ("plain", "corpus"):
            sys.modules.pop(module, None)
        torch._dynamo.reset()
    torch.set_float32_matmul_precision(before)
    assert losses[1] == pytest.approx(losses[0], rel=3e-2)


def timing(ns: float, steps: int = 100) -> Timing:
    return Timing(steps, ns, ns, 0.0, 0.0, 0.0, 1.0, 1.0)


def test_a_report_is_judged_by_cause_line_loop_step_and_promise() -> None:
    plant = twelve.BY_NAME["many_weights"]
    found = {"code": "BRR208", "severity": "warning", "where": [{"file": "/x/train.py", "line": 31}],
             "saving": {"low_ns": 2e6, "expected_ns": 4e6, "ceiling_ns": 6e6}}  # fmt: skip
    step = {"plain_wall_ns": 10.5e6, "averaged": False, "kind": "training", "count": 120}
    report = {"findings": [found], "step": step, "verdict": {}}
    row = planting.judged(report, plant, {"train.py": {30}}, timing(10e6), timing(5e6))
    assert row["headline"] and row["placed"] and row["loop"] and row["steps"]
    assert row["promises"][0]["held"] and row["promises"][0]["came_ns"] == pytest.approx(5.25e6)
    found["code"], found["where"][0]["line"] = "BRR110", 40  # type: ignore[index]
    step |= {"plain_wall_ns": 12e6, "count": 240}
    row = planting.judged(report, plant, {"train.py": {30}}, timing(10e6), timing(5e6))
    assert not (row["headline"] or row["placed"] or row["loop"] or row["steps"] or row["promises"][0]["held"])


def test_losses_are_the_same_or_not() -> None:
    plain = planting.losses_of("step    0  loss 6.9771\nstep   20  loss 0.0144  right 0.2")
    assert plain == {0: 6.9771, 20: 0.0144}
    assert planting.same(plain, {0: 6.9770, 20: 0.0145}) and not planting.same(plain, {0: 6.9771})
    assert not planting.same(plain, {0: 6.9, 20: 0.0144}) and not planting.same({}, {})


# Rows within a budget


def through(works: list[rows.Work], book: Path, on: str, budget_s: float) -> list[rows.Row]:
    return rows.through(works, book, on, budget_s, lambda line: None)


def test_rows_are_kept_left_out_and_gone_on_with(tmp_path: Path) -> None:
    done = tmp_path / "done"

    def work(name: str, seconds: float) -> rows.Work:
        return rows.Work(name, seconds, lambda: {"value": name, "wrote": done.open("a").write(name + " ")})

    def broken() -> rows.Row:
        raise OSError("no disk")

    works = [work("short", 1), rows.Work("broken", 1, broken), work("long", 1000)]
    first = through(works, tmp_path / "book", "A", 10)
    assert [row.get("value") for row in first] == ["short", None, None]
    assert first[1]["failed"] == "OSError: no disk" and first[2]["left_out"].startswith("not run: ")
    second = through(works, tmp_path / "book", "A", 2000)
    assert done.read_text() == "short long " and second[2]["value"] == "long" and second[1] == first[1]
    through(works, tmp_path / "book", "B", 10)
    assert done.read_text() == "short long short ", "another device makes them anew"
    rows.forget(tmp_path / "book", ["long"])
    through(works, tmp_path / "book", "A", 2000)
    assert done.read_text().endswith("long ")


def test_what_hangs_or_dies_is_ended_and_the_next_has_its_turn(tmp_path: Path) -> None:
    started = tmp_path / "started"

    def hangs() -> rows.Row:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        started.write_text(str(child.pid))
        time.sleep(60)
        return {}

    def dies() -> rows.Row:
        os.write(1, b"last words")
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    works = [rows.Work("hangs", 0.7, hangs), rows.Work("dies", 1, dies), rows.Work("next", 1, lambda: {"value": 1})]
    found = through(works, tmp_path / "book", "A", 30)
    assert found[0]["failed"].startswith("no end after") and found[2]["value"] == 1
    assert found[1]["failed"] == "its process died" and "last words" in found[1]["log"]
    status = Path(f"/proc/{started.read_text()}/status")
    assert not status.exists() or "zombie" in status.read_text(), "what it started is ended, too"


def test_what_the_time_cut_off_is_tried_once_more(tmp_path: Path) -> None:
    works = [rows.Work("slow", 0.3, lambda: time.sleep(60) or {})]
    for said in ("cut off: ", "cut off: ", "cut off in 2 calls"):
        (row,) = through(works, tmp_path / "book", "A", 0.5)
        assert (row.get("left_out") or row["failed"]).startswith(said)


CALL = """
import sys, time
from pathlib import Path
from benchmarks.gpu import rows
works = [rows.Work("quick", 1, lambda: {"value": 1}), rows.Work("slow", 20, lambda: time.sleep(30) or {})]
write = lambda done: Path("result").write_text(repr(done))
try:
    rows.through(works, Path("book"), "A", 60, lambda line: print(line, flush=True), write)
except rows.Ended:
    sys.exit(2)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_call_that_is_ended_leaves_what_was_done(number: signal.Signals, tmp_path: Path) -> None:
    places = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with subprocess.Popen([sys.executable, "-c", CALL], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": places}) as call:  # fmt: skip
        assert call.stdout and call.stdout.readline() == "quick: done\n"
        book = tmp_path / "book"
        while '"slow"' not in book.read_text():
            time.sleep(0.01)
        call.send_signal(number)
        assert call.wait(20) == (2 if number == signal.SIGTERM else -signal.SIGKILL)
    kept, cuts = rows.read(book, "A")
    assert list(kept) == ["quick"] and cuts == {"slow": 1}
    assert ("the call was ended" if number == signal.SIGTERM else "not run yet") in (tmp_path / "result").read_text()
    again = [rows.Work("slow", 1, lambda: {"value": 2})]
    with book.open("a") as file:
        file.write('{"begun": "slow", "on": "A"}\n{"half a li')
    assert through(again, book, "A", 60)[0]["failed"].startswith("cut off in 2 calls")
    assert "failed" in rows.read(book, "A")[0]["slow"], "half a line takes no other with it"
    rows.forget(book, ["slow"])
    assert through(again, book, "A", 60)[0]["value"] == 2 and rows.read(book, "A")[0]["quick"]["value"] == 1


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


def test_every_guarded_remedy_and_edit_is_one_and_has_its_program() -> None:
    for remedy, plant in tunings.REMEDIES:
        assert registry.remedy(remedy) and plant in BY_NAME
    for edit, name in tunings.EDITS:
        assert edit == "by hand" or edit in [other[0] for other in twelve.BY_NAME[name].others]


def test_forms_are_timed_compared_and_told_where_they_are_not_here() -> None:
    def slow() -> Any:
        time.sleep(0.01)
        return torch.ones(4)

    def absent() -> Any:
        raise RuntimeError("no such unit")

    kinds = [chip.Form("slow", lambda: slow), chip.Form("off", lambda: lambda: torch.full((4,), 1.5), 2.0),
             chip.Form("absent", absent)]  # fmt: skip
    first, off, none = chip.forms(TINY, kinds)
    assert first["ms"] >= 10 and first["ratio"] == 1 and first["error"] == 0
    assert off["ratio"] > 10 and off["error"] == pytest.approx(0.5) and off["published"] == 2.0
    assert none["ms"] is None and none["why_not"] == "RuntimeError: no such unit"


def test_a_device_is_timed_by_its_own_events_and_its_graphs_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, replays = [0.0], []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = clock[0]

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    class Graph:
        def replay(self) -> None:
            replays.append(self)

    for name, fake in {"Event": Event, "synchronize": lambda: None, "CUDAGraph": Graph, "Stream": object,
                       "stream": contextlib.nullcontext, "graph": contextlib.nullcontext}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)

    def call() -> float:
        clock[0] += 2.5
        return clock[0]

    cuda = Setting("cuda", True)
    assert chip._ms(call, 4, cuda) == 2.5
    replay = chip.graph_of(call, cuda)
    assert replay() == replay() == clock[0] and len(replays) == 2, "captured once, not called again"


# The scoreboard


def bar(board: list[dict[str, Any]], name: str) -> tuple[Any, Any]:
    found = next(each for each in board if each["bar"].startswith(name))
    return found["figure"], found["met"]


def test_bars_are_of_the_rows_that_count() -> None:
    def ordinary(right: bool, counts: bool = True) -> rows.Row:
        promises = [planting.promise("a", (1.0, 2.0, 3.0), 2.5 if right else 3.5), planting.promise("b", None, 1.0)]
        return {"ordinary": "x", "headline": right, "loop": True, "steps": right, "placed": right, "counts": counts,
                "watched_is_plain": True, "promises": promises}  # fmt: skip

    good = [ordinary(True)] * 11
    assert bar(scoreboard.board([]), "headline") == ("0 of 0", None)
    assert bar(scoreboard.board([ordinary(False, counts=False)]), "headline") == ("0 of 0", None)
    assert bar(scoreboard.board(good), "headline") == ("11 of 11", True)
    assert bar(scoreboard.board(good), "loop") == ("11 of 11", None), "one has not run"
    assert bar(scoreboard.board(good), "watched = plain") == ("11 of 11", None)
    board = scoreboard.board([*good, ordinary(False)])
    assert bar(board, "headline") == ("11 of 12", True) and bar(board, "loop") == ("12 of 12", True)
    assert bar(board, "steps") == ("11 of 12", False) and bar(board, "promises") == ("92%", True)
    assert bar(scoreboard.board([*good, {**ordinary(True), "failed": "x"}]), "headline") == ("11 of 11", True)


def test_a_tuning_that_was_not_confirmed_brought_nothing() -> None:
    def tuned(speed: float, confirmed: bool) -> rows.Row:
        return {"tuned": "x", "speedup": [speed, 1.0, 9.0], "confirmed": confirmed, "counts": True, "promises": []}

    board = scoreboard.board([tuned(4.0, True), tuned(4.0, False)])
    assert bar(board, "tune over") == ("2.00x", None) and bar(board, "tune confirmed") == ("1 of 2", None)
    board = scoreboard.board([tuned(4.0, True)] * 6 + [tuned(1.0, False)] * 6)
    assert bar(board, "tune over") == ("2.00x", True) and bar(board, "tune confirmed") == ("6 of 12", False)


def test_a_receipt_gives_one_promise_for_each_cure_the_last() -> None:
    def trial(name: str, realised: float | None) -> TrialResult:
        return TrialResult(
            remedies=(name,), purpose="add", verdict="faster", predicted=Saving(1, 2, 3), realised_ns=realised
        )

    told = tunings._promises([trial("a", 5.0), trial("b", None), trial("a", 2.5)])
    assert told == [planting.promise("a", (1, 2, 3), 2.5)] and told[0]["held"]


@pytest.mark.parametrize(
    ("plain", "watched", "is_same"),
    [("0.5", "0.5", True), ("nan", "nan", True), ("nan", "inf", False), ("0.5", "0.6", False), ("", "", False)],
)
def test_ranks_that_print_the_same_losses_print_some(plain: str, watched: str, is_same: bool) -> None:
    said = [f"rank 0  step 20  loss {loss}\n" if loss else "" for loss in (plain, watched)]
    assert ddp.same(*said) is is_same


def test_results_of_two_devices_of_one_day_are_two_files(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in ("NVIDIA H200", "AMD Instinct (MI300X)"):
        monkeypatch.setattr(Setting, "name", name)
        assert gpu.main(["--device", "cpu", "--tiny", "--row", "waves"]) == 0
    capsys.readouterr()
    ends = {file.stem.split("-", 5)[-1] for file in Path(".gobrrr/gpu").glob("gpu-rows-*.json")}
    assert ends == {"nvidia-h200", "amd-instinct-mi300x"}


def test_other_bars_and_their_lines() -> None:
    ranks = {"ddp": 2, "step_ms": 10.0, "clock_ms": 12.0, "rank_named": True, "watched_is_plain": False, "counts": True}
    cost = {"watched": "ten ms", "cost": {"median": 0.012}, "counts": True}
    edit = {"edit": "x", "guard": "changed", "counts": True, "promises": [planting.promise("p", (1e6, 2e6, 3e6), 4e6)]}
    board = scoreboard.board([ranks, cost, edit, {**edit, "reasons": [scoreboard.UNJUDGED], "promises": []}])
    assert bar(board, "ranks: step") == ("0 of 1", False) and bar(board, "ranks: who") == ("1 of 1", True)
    assert bar(board, "watching costs") == ("1.20%", False) and bar(board, "remedies") == ("0 of 1", False)
    assert bar(board, "watched = plain") == ("0 of 1", False) and bar(board, "promises") == ("0%", False)
    remedy = {"remedy": "x", "guard": "unverified", "counts": True}
    unjudged = {**remedy, "trials": [{"reasons": []}, {"reasons": [scoreboard.UNJUDGED]}]}
    assert bar(scoreboard.board([unjudged]), "remedies") == ("0 of 0", None)
    assert bar(scoreboard.board([{**remedy, "trials": [{"reasons": []}]}]), "remedies") == ("0 of 1", False)
    lines = "\n".join(scoreboard.told([ranks, cost, edit]))
    assert "not run" in lines and "MISSED" in lines and "2.00 ms (1.00 ms to 3.00 ms)" in lines


@pytest.mark.parametrize("causal", [True, False])
def test_the_plain_model_learns_and_sees_what_it_may(causal: bool) -> None:
    torch.manual_seed(0)
    model = runpy.run_path(str(twelve.HERE / "plain.py"))["Language"](50, 8, 16, 2, 1, causal=causal)
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
    monkeypatch.setattr(gpu, "there", lambda: {"count": 0})
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


def test_rows_by_name_are_done_told_and_scored(capsys: Any) -> None:
    assert gpu.main(["--device", "cpu", "--tiny", "--row", "products", "waves"]) == 0
    said = capsys.readouterr().out
    assert "2 of " in said and "no figure of theirs counts" in said and "not here: " in said
    found = json.loads(next(Path(".gobrrr/gpu").glob("gpu-rows-*.json")).read_text())
    assert [row["name"] for row in found["rows"]] == ["products", "waves"]
    assert gpu.main(["--device", "cpu", "--tiny", "--row", "product"]) == 2
    assert "no such row: product" in capsys.readouterr().out
    assert gpu.main(["--device", "cpu", "--tiny", "--board"]) == 0
    assert "2 of " in capsys.readouterr().out


def test_a_fresh_copy_goes_on_from_the_results_that_lie_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    done = [{"name": "a", "on": "H", "value": 1}, {"name": "b", "on": "other"}, {"name": "c", "on": "H", "failed": "x"}]
    (tmp_path / "gpu-1-2026-01-01.json").write_text(json.dumps({"schema": gpu.SCHEMA, "rows": done}))
    (tmp_path / "gpu-h200.json").write_text(json.dumps({"schema": "gobrrr.gpu-first/1"}))
    (tmp_path / "gpu-2.json").write_text("half a")
    gpu._seeded(tmp_path / "book", "H")
    assert rows.read(tmp_path / "book", "H") == ({"a": done[0]}, {})


def test_names_of_rows_are_unique_and_those_that_the_page_tells_are_there() -> None:
    names = [work.name for work in parts.every(TINY)]
    assert len(names) == len(set(names))
    page = (ROOT / "docs" / "trust" / "results.md").read_text()
    told = [name for words in re.findall(r"ROW='([^']+)'", page) for name in shlex.split(words)]
    assert told and set(told) <= set(names)
    told = [int(number) for words in re.findall(r"PART='?([\d ]+)", page) for number in words.split()]
    assert told and set(told) <= set(parts.TITLES)


@pytest.mark.slow  # starts some ten programs
@pytest.mark.parametrize("name", ["many_weights", "sync_item", "DDP, two ranks, one late", "trace hand_made_attention",
                                  "watching ten ms", "GPT-2, 1024"])  # fmt: skip
def test_a_row_of_each_kind_comes_to_its_end(name: str, capsys: Any) -> None:
    assert gpu.main(["--device", "cpu", "--tiny", "--row", name]) == 0
    assert f"{name}: done" in capsys.readouterr().err


@pytest.mark.slow  # the whole battery, some ten minutes
@pytest.mark.parametrize("number", parts.TITLES)
def test_every_part_comes_to_its_end(number: int) -> None:
    assert gpu.main(["--part", str(number), "--device", "cpu", "--tiny"]) == 0
