"""Perfetto's own trace processor reads what is written: every slice, arrow and counter, at its nanosecond."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobrrr.cli.main import main
from tests.pipeline.test_files import training, write
from tests.report.perfetto.processor import MISSING, ask
from tests.report.perfetto.strict import check, read
from tests.support.page_samples import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))
SLICES = """select p.pid, t.name, s.ts, s.dur, s.name, s.depth from slice s join thread_track k on s.track_id = k.id
 join thread t using (utid) join process p using (upid) order by t.tid, s.ts, s.depth"""
ERRORS = """select name, value from stats where value > 0 and severity != 'info'"""
ARROWS = """select a.ts, a.name, b.ts, b.name from flow join slice a on a.id = slice_out join slice b on b.id = slice_in
 order by b.ts"""
COUNTERS = "select k.name, c.ts, c.value from counter c join counter_track k on k.id = c.track_id order by 1, 2, c.id"
ARGS = "select s.name, a.key, a.display_value from slice s join args a using (arg_set_id) where s.name glob 'BRR*'"


def written(folder: Path, *words: str) -> Path:
    target = folder / "x.perfetto.json.gz"
    assert main(["diagnose", *words, "-o", str(target)]) == 0
    return target


def as_numbers(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Where the shell answered, as text."""
    return [tuple(int(v) if isinstance(v, str) and v.lstrip("-").isdigit() else v for v in row) for row in rows]


def same_as_the_file(target: Path) -> None:
    """What it has of slices, arrows and counters is what the file says, to the nanosecond, and nothing was dropped."""
    events = check(read(target))
    slices, errors, arrows, counters = ask(target, SLICES, ERRORS, ARROWS, COUNTERS)
    assert errors == []
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    said = sorted(
        (e["pid"], tracks[e["tid"]], int(e["ts"] * 1000), int(e["dur"] * 1000), e["name"])
        for e in events
        if e["ph"] == "X"
    )
    assert sorted(row[:5] for row in as_numbers(slices)) == said
    ends = {e["id"]: int(e["ts"] * 1000) for e in events if e["ph"] == "f"}
    linked = sorted((int(e["ts"] * 1000), ends[e["id"]]) for e in events if e["ph"] == "s")
    assert sorted((a, b) for a, _, b, _ in as_numbers(arrows)) == linked
    counted = [(int(e["ts"] * 1000), float(v)) for e in events if e["ph"] == "C" for v in e["args"].values()]
    assert sorted((t, float(v)) for _, t, v in as_numbers(counters)) == sorted(counted)  # type: ignore[arg-type]


def test_a_training_on_a_gpu(tmp_path: Path) -> None:
    target = written(tmp_path, str(write(tmp_path / "t.json", training(comm=100))))
    same_as_the_file(target)
    arrows, args = ask(target, ARROWS, ARGS)
    assert [(a[1], a[3]) for a in arrows[:2]] == [
        ("cudaLaunchKernel", "volta_sgemm_128x64"),
        ("cudaLaunchKernel", "ncclDevKernel_AllReduce_Sum_f32"),
    ]
    wanted = {"args.code", "args.sentence", "args.place", "args.expected back, ms per step"}
    assert wanted <= {key for _, key, _ in args}


def test_ops_are_nested_as_they_ran(tmp_path: Path) -> None:
    (rows,) = ask(written(tmp_path, str(write(tmp_path / "t.json", training()))), SLICES)
    depth = {row[4]: int(str(row[5])) for row in rows if str(row[1]).startswith("main thread")}
    assert depth["train.py(30): loop"] < depth["aten::mm"] < depth["cudaLaunchKernel"]


@pytest.mark.parametrize("word", [*HOSTILE[::6], "x" * 100_000, "\u202edrowssap", "a\x00b"])
def test_hostile_names(word: str, tmp_path: Path) -> None:
    events = [{**e, "name": word} if e["name"] == "volta_sgemm_128x64" else e for e in training()]
    same_as_the_file(written(tmp_path, str(write(tmp_path / "t.json", events))))


def test_ranks_are_processes(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [e | {"ts": e["ts"] + 250 * rank} for e in training(comm=100)]
        write(tmp_path / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    target = written(tmp_path, str(tmp_path / "rank0.json"), str(tmp_path / "rank1.json"))
    same_as_the_file(target)
    (found,) = ask(target, "select pid, name from process where pid > 0 order by pid")
    assert [str(name).split(" (")[0] for _, name in found] == ["rank 0", "rank 1"]


REAL = ("kineto/v100_resnet50_workers0", "hta/a100_2rank_nccl_metadata", "tracelens/h100_timesformer",
        "tracelens/vllm_prefilldecode_graph_replay")  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_traces(name: str, tmp_path: Path) -> None:
    trace = TRACES / f"{name}.json.gz"
    if not trace.exists():
        pytest.skip("no real traces here: set GOBRRR_TRACES")
    same_as_the_file(written(tmp_path, str(trace)))
