"""Timelines made by hand, written as files: steps, lines, archives, ranks, and files that are none."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gobrrr.cli.main import main
from gobrrr.errors import TraceError
from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.host.host_ops import host_ops
from gobrrr.ledger.host.origins import chains
from gobrrr.ledger.host.places import replay
from gobrrr.ledger.job.calls import Calls
from gobrrr.ledger.job.ranks import RankSummary, _told, together
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed, reduced
from gobrrr.recording.model.trace import launch_rows
from gobrrr.recording.trace_files.limits import DEFAULT, Limits
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import Source, find, read
from gobrrr.recording.trace_files.stack_lines import is_user
from gobrrr.report.text.report import brief
from tests.support.shown import as_comment

Event = dict[str, Any]
STEP, NUM = 1000, 4


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, correlation: int, cat: str = "kernel") -> Event:
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def training(*, marked: bool = True, wait: int = 300, own: int = 0, comm: int = 0) -> list[Event]:
    """Four steps of 1000 us: a wait for data, `own` of Python, a launch, 200 us of a product and `comm` of NCCL."""
    events: list[Event] = []
    for i in range(NUM):
        t = i * STEP
        if marked:
            events.append(event(f"ProfilerStep#{i}", t, STEP, "user_annotation"))
        events += [
            event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, wait, "user_annotation"),
            event("train.py(30): loop", t, STEP, "python_function"),
            event("train.py(12): prepare", t + wait, own, "python_function"),
            event("torch/nn/functional.py(1): linear", t + wait + own, 50, "python_function"),
            event("aten::mm", t + wait + own, 50),
            event("cudaLaunchKernel", t + wait + own + 10, 5, "cuda_runtime", correlation=2 * i + 1),
            kernel("volta_sgemm_128x64", t + wait + own + 20, 200, 2 * i + 1),
            event("cudaLaunchKernel", t + wait + own + 30, 5, "cuda_runtime", correlation=2 * i + 2),
            kernel("ncclDevKernel_AllReduce_Sum_f32", t + wait + own + 220, comm, 2 * i + 2),
            event("Optimizer.step#SGD.step", t + 950, 40, "user_annotation"),
        ]
    return events


def write(path: Path, events: list[Event], **top: Any) -> Path:
    data = json.dumps({"schemaVersion": 1, "traceEvents": events, **top}).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_steps_come_from_the_profiler_or_from_updates(tmp_path: Path) -> None:
    for name, marked, count in (("a.json", True, NUM), ("b.json", False, NUM - 1)):
        recording = of_trace(read(Source(str(write(tmp_path / name, training(marked=marked))))))
        assert recording.main is not None and recording.offline
        assert len(recording.main.steps) == count
        assert {round(step.wall / 1000) for step in recording.main.steps} == {STEP}


def test_steps_that_are_told_and_those_whose_ops_are_are_the_same(tmp_path: Path) -> None:
    """Two of six take five times as long, as while a checkpoint is written: no figure is of them."""
    begins = [0, 1000, 2000, 3000, 4000, 9000, 14_000]
    events = [
        each for number, (begin, end) in enumerate(pairwise(begins))
        for each in (event(f"ProfilerStep#{number}", begin, end - begin, "user_annotation"),
                     event("aten::mm", begin + 100, 500))
    ]  # fmt: skip
    report = diagnosed(Source(str(write(tmp_path / "t.json", events))), UNKNOWN, DEFAULT)
    assert (report.step.count, report.step.plain_count, report.step.profiled_count) == (6, 4, 4)
    assert "mean of 4 of 6 loop steps" in brief(report)


def test_ops_that_nest_without_end_cost_no_memory_with_the_square_of_their_depth(tmp_path: Path) -> None:
    """100,000 of them, 8 MB on disk: callers' chains grew with the square of the depth, and 4 GB were not enough."""
    nested = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": i, "dur": 1000 - 2 * i}
        for i in range(400)
    ]
    recording = of_trace(read(Source(str(write(tmp_path / "a.json", nested)))))
    window = recording.window("profile")
    assert window is not None and recording.trace is not None
    host = host_ops(recording, window, recording.trace, replay(window.lines, window.offset))
    assert len(host) == 400 and max(map(len, chains(host)[1])) == 64


def test_which_step_it_was_is_no_part_of_what_encloses_an_op(tmp_path: Path) -> None:
    events = [event(f"ProfilerStep#{i}", 100 * i, 100, "user_annotation") for i in range(2)]
    for i in range(2):
        events += [event("aten::linear", 100 * i + 1, 50), event("aten::addmm", 100 * i + 2, 40)]
    recording = of_trace(read(Source(str(write(tmp_path / "a.json", events)))))
    window = recording.window("profile")
    assert window is not None and recording.trace is not None
    host = host_ops(recording, window, recording.trace, replay(window.lines, window.offset))
    numbers, chain = chains(host)
    found = {host.name(row): chain[number] for row, number in enumerate(numbers.tolist())}
    assert found["aten::linear"] == () and found["aten::addmm"] == ("aten::linear",)


def test_a_file_without_marks_is_one_step(tmp_path: Path) -> None:
    events = [e for e in training(marked=False) if not e["name"].startswith("Optimizer")]
    recording = of_trace(read(Source(str(write(tmp_path / "a.json", events)))))
    assert recording.main is not None and len(recording.main.steps) == 1


def test_idle_goes_to_the_wait_the_launch_and_the_users_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json.gz", training(wait=300, own=250))
    ledger = build_ledger(Profiled(of_trace(read(Source(str(path))))), UNKNOWN)
    assert ledger.device is not None
    assert ledger.device.busy_ns == 200_000
    causes = {name: round(ns / 1000) for name, ns in ledger.device.idle_by_cause}
    assert causes == {"stalled": 0, "data_wait": 300, "sync": 0, "communication": 0, "allocator": 0, "launch": 20,
                      "host": 480}  # fmt: skip
    lines = {group.where[0].line: round(group.ns / 1000) for group in ledger.host if group.where}
    assert lines[12] == 250  # all of it while the device idles
    assert sum(account.ns for account in ledger.accounts) == pytest.approx(STEP * 1000)


def test_python_is_told_with_the_librarys_hot_path_below_the_line(tmp_path: Path) -> None:
    """600 us before the first kernel: 400 in a library's preprocess, which resizes for 250 and calls itself; a launcher
    is above the user's line, not below it."""
    events = [event("ProfilerStep#0", 0, 1000, "user_annotation")]
    for name, ts, dur in (
        ("lib/python3.11/site-packages/joblib/run.py(1): launch", 1, 998), ("serve.py(7): main", 2, 990),
        ("transformers/images.py(40): preprocess", 100, 400), ("transformers/images.py(40): preprocess", 110, 350),
        ("transformers/images.py(90): resize", 120, 250), ("transformers/images.py(95): check", 380, 10),
    ):  # fmt: skip
        events.append(event(name, ts, dur, "python_function"))
    events += [
        event("aten::mm", 600, 50), event("cudaLaunchKernel", 610, 10, "cuda_runtime", correlation=1),
        kernel("sgemm", 625, 375, 1),
    ]  # fmt: skip
    path = write(tmp_path / "a.json", events)
    group = max(build_ledger(Profiled(of_trace(read(Source(str(path))))), UNKNOWN).host, key=lambda g: g.ns)
    assert group.where[0].file == "serve.py" and round(group.ns / 1000) == 598
    told = [(name, round(share * group.ns / 1000)) for name, share in group.hot]
    assert told == [("transformers.images.preprocess", 400), ("transformers.images.resize", 250)]
    report = diagnosed(Source(str(path)), UNKNOWN, DEFAULT)
    (found,) = (f for f in report.findings if f.code == "BRR302")
    assert "400 us (66.9 %) in transformers.images.preprocess" in found.message
    assert found.evidence["in transformers.images.resize"].value == pytest.approx(250_000, rel=0.01)
    assert "loader workers" in found.advice


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("<built-in function sleep>", "450 us (90.0 %) in built-in sleep"),
        ("<built-in method acquire of _thread.lock object at 0x7f>", "450 us (90.0 %) in built-in acquire"),
        ("<built-in method sum of numpy.ndarray object>", ""),
    ],
)
def test_a_line_that_waits_is_not_told_to_work_on_whole_tensors(name: str, told: str, tmp_path: Path) -> None:
    events = [
        event("ProfilerStep#0", 0, 1000, "user_annotation"), event("serve.py(7): poll", 100, 500, "python_function"),
        event(name, 120, 450, "python_function"), event("aten::mm", 600, 50),
        event("cudaLaunchKernel", 610, 10, "cuda_runtime", correlation=1), kernel("sgemm", 625, 375, 1),
    ]  # fmt: skip
    report = diagnosed(Source(str(write(tmp_path / "a.json", events))), UNKNOWN, DEFAULT)
    (found,) = (f for f in report.findings if f.code == "BRR302")
    assert told in found.message and ("Nothing computes here" in found.advice) is bool(told)
    assert ("whole tensors" in found.advice) is not bool(told)


def test_the_wait_for_data_is_told_with_its_line_and_the_library_below(tmp_path: Path) -> None:
    """Of 600 us 450 under the data set's own line, 400 of that in a library that decodes."""
    events = []
    for i in range(NUM):
        t = i * STEP
        events += [
            event(f"ProfilerStep#{i}", t, STEP, "user_annotation"),
            event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, 600, "user_annotation"),
            event("train.py(30): loop", t, STEP, "python_function"),
            event("data.py(8): __getitem__", t + 100, 450, "python_function"),
            event("PIL/Image.py(70): decode", t + 120, 400, "python_function"),
            event("aten::mm", t + 610, 50),
            event("cudaLaunchKernel", t + 620, 5, "cuda_runtime", correlation=i),
            kernel("volta_sgemm_128x64", t + 630, 200, i),
        ]
    report = diagnosed(Source(str(write(tmp_path / "a.json", events))), UNKNOWN, DEFAULT)
    (found,) = (f for f in report.findings if f.code == "BRR405")
    assert (found.where[0].file, found.where[0].line) == ("data.py", 8)
    assert "450 us of it under this line" in found.message
    assert found.evidence["in PIL.Image.decode"].value == pytest.approx(400_000, rel=0.01)
    assert found.evidence["at_line"].value == pytest.approx(450_000, rel=0.01)


@pytest.mark.parametrize("recorded", [True, False])
def test_work_of_before_the_first_step_is_not_the_steps(recorded: bool, tmp_path: Path) -> None:
    """A kernel of 400 us that was queued before, 300 of them within the mark; the host is 200 us ahead by then."""
    launch = [event("cudaLaunchKernel", 5, 5, "cuda_runtime", correlation=1)] if recorded else []
    events = [
        *launch, kernel("older", 20, 400, 1), event("ProfilerStep#0", 120, 900, "user_annotation"),
        event("aten::mm", 150, 50), event("cudaLaunchKernel", 160, 10, "cuda_runtime", correlation=2),
        kernel("volta_sgemm_128x64", 420, 200, 2),
    ]  # fmt: skip
    recording = of_trace(read(Source(str(write(tmp_path / "a.json", events)))))
    assert recording.main is not None
    (step,) = recording.main.steps
    assert step.end - step.start == 600_000  # from 420, where the older work ends, to 1020
    ledger = build_ledger(Profiled(recording), UNKNOWN)
    assert ledger.device is not None and ledger.device.busy_ns == 200_000
    assert [op.ns for op in ledger.device_ops] == [200_000]  # of an op that ran before the device came to the step


def test_what_the_host_does_while_the_device_works_costs_nothing(tmp_path: Path) -> None:
    """400 us of Python, all of it below a kernel that was launched before."""
    events = []
    for i in range(NUM):
        t = i * STEP
        events += [
            event(f"ProfilerStep#{i}", t, STEP, "user_annotation"),
            event("cudaLaunchKernel", t, 5, "cuda_runtime", correlation=i + 1),
            kernel("volta_sgemm_128x64", t + 5, 990, i + 1),
            event("aten::mm", t, 10),
            event("train.py(12): prepare", t + 100, 400, "python_function"),
        ]
    report = diagnosed(Source(str(write(tmp_path / "a.json", events))), UNKNOWN, DEFAULT)
    assert report.verdict.bound == "compute"
    assert not [finding for finding in report.findings if not finding.code.startswith("BRR9")]


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("train.py", True), ("src/model/blocks.py", True), ("/home/me/train.py", True), ("threading.py", False),
        ("torch/nn/modules/module.py", False), ("transformers/models/bert/modeling_bert.py", False),
        ("/usr/lib/python3.11/runpy.py", False), ("/venv/lib/python3.11/site-packages/x/y.py", False),
        ("<frozen runpy>", False), (r"torch\nn\modules\module.py", False), (r"D:\proj\train.py", True),
        (r"C:\venv\Lib\site-packages\x\y.py", False), (r"C:\Users\a\Python311\Lib\runpy.py", False),
        (r"src\blocks.py", True),
    ],
)  # fmt: skip
def test_whose_file_is_it(file: str, user: bool) -> None:
    assert is_user(file) == user


def test_folders_patterns_and_archives(tmp_path: Path) -> None:
    inner = tmp_path / "ranks"
    inner.mkdir()
    files = [write(inner / f"rank{n}.json", training()) for n in range(3)]
    (inner / "notes.txt").write_text("no trace")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        for file in files:
            archive.add(file, f"job/{file.name}")
        archive.addfile(tarfile.TarInfo("job/readme"), io.BytesIO())
    assert [s.path for s in find([str(inner)])] == [str(f) for f in files]
    assert len(find([f"{inner}/rank[01].json"])) == 2
    sources = find([str(tmp_path / "all.tar.gz")])
    assert [s.member for s in sources] == [f"job/rank{n}.json" for n in range(3)]
    assert len(read(sources[0]).kernels) == len(read(Source(str(files[0]))).kernels)
    with pytest.raises(TraceError, match="limit"):
        find([str(tmp_path / "all.tar.gz")], Limits(unpacked_bytes=1000))


def test_of_a_run_its_traces_are_read_and_not_its_report(tmp_path: Path) -> None:
    run, beside = tmp_path / "run", tmp_path / "others"
    for folder in (run, beside):
        folder.mkdir()
        for name in ("rank0.window1-5.trace.json", "report.json", "seen-17.json"):
            write(folder / name, training())
    (run / "rank0.journal").write_bytes(b"")
    assert [s.path for s in find([str(run)])] == [str(run / "rank0.window1-5.trace.json")]
    own = write(run / "mine.pt.trace.json", training())
    assert [s.path for s in find([str(run)])] == [str(own), str(run / "rank0.window1-5.trace.json")], "the user's too"
    assert len(find([str(beside)])) == 3, "no run: any JSON may be a trace"


def test_the_late_rank_is_named_by_its_own_time_and_what_took_it(tmp_path: Path) -> None:
    """All ranks make the same step; rank 2 prepares 300 us longer and waits 300 us less."""
    for rank in range(4):
        late = 300 if rank == 2 else 0
        events = training(wait=10, own=50 + late, comm=400 - late)
        write(tmp_path / f"r{rank}.json", events, distributedInfo={"rank": rank, "world_size": 5})
    job = together([reduced(Source(str(p)), UNKNOWN, DEFAULT) for p in sorted(tmp_path.glob("*.json"))])
    assert (job.bound, job.slowest, job.because, job.missing) == ("straggler", 2, "host", (4,))
    assert job.late_ns == pytest.approx(300_000, rel=0.01)
    waits = {r.rank: r.exposed_communication_ns for r in job.ranks}
    assert min(waits, key=waits.__getitem__) == 2


def test_equal_ranks_have_no_culprit() -> None:
    ranks = [RankSummary(source=str(n), rank=n, step_ns=1e6, exposed_communication_ns=4e5) for n in range(4)]
    job = together([*ranks, RankSummary(source="x", error="x is empty")])
    assert (job.bound, job.slowest, job.late_ns) == ("communication", None, 0.0)
    assert job.exposed_share == pytest.approx(0.4)
    assert together([*ranks, ranks[0]]).doubled == (0,)


def test_the_command_on_one_on_many_and_on_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "a.json", training(wait=500))
    assert main(["diagnose", str(one), "--json", str(tmp_path / "out.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Data loading") and "BRR405" in shown and "ran under the profiler" in shown
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == "gobrrr.report/1"
    (tmp_path / "out.json").unlink()
    write(tmp_path / "b.json", training(wait=500))
    (tmp_path / "c.json").write_text("")
    assert main(["diagnose", str(tmp_path), "--jobs", "1"]) == 0
    assert "1 could not be read" in capsys.readouterr().out
    assert main(["diagnose", str(tmp_path / "none.json")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["diagnose", str(tmp_path / "c.json")]) == 2
    assert "is empty" in capsys.readouterr().err
    assert main(["diagnose", str(one), "--max-events", "3"]) == 2
    assert "--max-events lifts it" in capsys.readouterr().err
    assert main(["diagnose", str(one), "--machine", str(one)]) == 2
    assert "holds no ceilings" in capsys.readouterr().err


def test_nothing_is_said_of_threads_that_no_file_counts(tmp_path: Path) -> None:
    """With the ceilings of the traced machine, a program of the CPU is priced; its threads are not known."""
    from tests.support.machine_samples import machine

    shapes = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}
    events = []
    for i in range(NUM):
        events += [
            event(f"ProfilerStep#{i}", i * 5000, 5000, "user_annotation"),
            event("aten::mm", i * 5000 + 10, 4900, **shapes),
        ]
    report = diagnosed(Source(str(write(tmp_path / "a.json", events))), machine(), DEFAULT)
    assert {a.account for a in report.ledger} >= {"compute", "inefficiency"}
    assert not [finding for finding in report.findings if finding.code == "BRR309"]


def test_a_job_as_markdown_has_a_row_for_each_rank_and_nothing_foreign_raw() -> None:
    ranks = [RankSummary(source=str(n), rank=n, step_ns=1e6, exposed_communication_ns=4e5 - n) for n in range(3)]
    job = together([*ranks, RankSummary(source="x", error="<b>x</b> | is [empty](http://x)")])
    lines = as_comment(job).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [row.split("|")[1].strip() for row in rows] == ["rank", "--:", "2", "1", "0"]
    assert all(row.replace("\\|", "").count("|") == 8 for row in rows)
    assert "<b>" not in rows[-1] and "[empty](" not in rows[-1] and "- ranks: 1 could not be read" in lines


def test_a_file_that_ends_in_the_middle_allows_no_verdict(tmp_path: Path) -> None:
    """What is missing may be all that the device did: its events come after the host's."""
    whole = json.dumps({"schemaVersion": 1, "traceEvents": training(wait=300, own=250)})
    (tmp_path / "cut.json").write_text(whole[: len(whole) // 2])
    report = diagnosed(Source(str(tmp_path / "cut.json")), UNKNOWN, DEFAULT)
    assert report.verdict.bound == "unreliable" and "BRR906" in report.verdict.sentence


@pytest.mark.parametrize("trailing", [b"xxxx", b"\0" * 64])
def test_what_follows_compressed_data_is_left_out(trailing: bytes, tmp_path: Path) -> None:
    data = gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": training(wait=300, own=250)}).encode())
    (tmp_path / "a.json.gz").write_bytes(data + trailing)
    trace = read(Source(str(tmp_path / "a.json.gz")))
    assert len(trace.ops) and not trace.truncated and ("other bytes follow" in trace.note) is (trailing == b"xxxx")


@pytest.mark.parametrize(
    ("numbers", "linked"),
    [
        ({"kernel": 1, "cuda_runtime": 1}, False),  # one number for all
        ({"kernel": None, "cuda_runtime": None}, False),
        ({"kernel": 1}, True),  # the first call launched them all, as a graph does
    ],
)
def test_steps_that_are_marked_are_there_whatever_the_correlations_say(
    numbers: dict[str, int | None], linked: bool, tmp_path: Path
) -> None:
    events = training()
    for one in events:
        if one["cat"] in numbers:
            one["args"]["correlation"] = numbers[one["cat"]]
    source = Source(str(write(tmp_path / "a.json", events)))
    report = diagnosed(source, UNKNOWN, DEFAULT)
    assert report.step.count == NUM and round(report.step.wall_ns / 1000) == STEP
    assert report.verdict.bound == "unreliable"
    trace = read(source)
    assert bool((launch_rows(trace.kernels, trace.runtime) >= 0).all()) is linked


def test_a_drivers_call_inside_of_a_runtimes_is_no_second_one(tmp_path: Path) -> None:
    events = [
        event("cudaLaunchKernel", 0, 10, "cuda_runtime", correlation=1),
        event("cuLaunchKernel", 2, 5, "cuda_driver", correlation=1), kernel("gemm", 12, 5, 1),
    ]  # fmt: skip
    trace = read(Source(str(write(tmp_path / "a.json", events))))
    assert launch_rows(trace.kernels, trace.runtime).tolist() == [0]


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([(0, 2), (0, 2), (0, 2)], "3 files say that they are rank 0 of 2"),
        ([(0, 2), (1, 4)], "jobs of 2 and 4 ranks"),
        ([(0, 2), (5, 2)], "rank 5 of 2"),
        ([(0, 2), (1, 2)], ""),
        ([(0, 4), (2, 4)], ""),
        ([(None, None), (None, None)], "do not say that they are ranks"),
        ([(0, 2), (None, None)], "1 of 2 files do not say which rank they are (1)"),
    ],
)
def test_files_that_are_not_the_ranks_of_one_job_allow_no_verdict(ranks: list[tuple[Any, Any]], why: str) -> None:
    job = together([RankSummary(source=f"{i}", rank=r, world_size=w, step_ns=1e6) for i, (r, w) in enumerate(ranks)])
    assert (job.bound == "unreliable") is bool(why) and why in job.verdict
    assert len(job.ranks) == len(ranks)


def test_files_that_communicate_are_ranks_though_none_says_so() -> None:
    job = together([RankSummary(source=f"{i}", step_ns=1e6, communication_ns=1e3) for i in range(2)])
    assert job.bound == "balanced"


def test_one_trace_among_other_files_is_told_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "trace.json", training())
    (tmp_path / "config.json").write_text('{"lr": 1}')
    assert main(["diagnose", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Only one of 2 files could be read: Host-bound") and "Balanced" not in shown


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_links_end_in_one_line_or_are_left_out(tmp_path: Path) -> None:
    """Nobody writes to the pipe: to wait for it is to wait for ever."""
    for name in ("a.json", "a.tar.gz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(TraceError, match="no plain file"):
            read(*find([str(tmp_path / name)]))
    with pytest.raises(TraceError):
        read(Source(str(tmp_path / "a.tar.gz"), "member.json"))
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "one.json", training())
    (folder / "round").symlink_to(folder)
    (folder / "again.json").symlink_to(folder / "one.json")
    (folder / "gone.json").symlink_to(folder / "nowhere.json")
    for word in (folder, folder / "*", folder / "round"):
        assert len(find([str(word)])) == 1


def test_ranks_without_steps_have_no_share_in_communication() -> None:
    """Of two such and one with steps the median is nothing."""
    empty = [RankSummary(source=str(n), rank=n) for n in range(2)]
    job = together([*empty, RankSummary(source="2", rank=2, step_ns=1e6, exposed_communication_ns=4e5)])
    assert job.exposed_share == 0.0 and job.bound != "communication"


def test_a_rank_that_tells_of_no_collectives_has_them_as_recorded() -> None:
    told = _told(RankSummary(source="a", communication_ns=5.0, exposed_communication_ns=3.0))
    assert (told.per_step, told.bare_per_step) == (1.0, 1.0)
    calls = Calls(ns=10.0, bare_ns=4.0)
    told = _told(RankSummary(source="a", calls=calls, communication_ns=5.0, exposed_communication_ns=3.0))
    assert (told.per_step, told.bare_per_step) == (0.5, 0.75)
    waits = {"exposed_communication_ns": 9.0, "waited_ns": 6.0}
    told = _told(RankSummary(source="a", calls=calls, communication_ns=5.0, **waits))
    assert (told.per_step, told.bare_per_step) == (0.5, 0.75), "what a thread of the host carries is no kernel"
