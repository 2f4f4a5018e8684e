"""Recordings as a trace for ui.perfetto.dev, read back by a strict reader; by Perfetto's own next door."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.cli.main import main
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from gobrrr.report.timeline.perfetto import KIND, LINE, NOWHERE, WAITS, WHOLE, to_perfetto
from gobrrr.report.timeline.trace_events import LANES, document, lanes, micros, text
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.rules.verdict.report import Report
from tests.pipeline.test_files import NUM, Event, event, kernel, training, write
from tests.report.perfetto.strict import check, read
from tests.support import report_samples as samples
from tests.support.page_samples import HOSTILE, with_texts
from tests.support.timelines import FILE, MS, OFFSET, US, Timeline

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))
REAL = sorted(TRACES.glob("*/*.json.gz")) if TRACES.is_dir() else []


def drawn(folder: Path, *words: str, name: str = "x.perfetto.json") -> list[Event]:
    """The events that `gobrrr diagnose` writes, once they are found to be sound."""
    target = folder / name
    assert main(["diagnose", *words, "-o", str(target)]) == 0
    return check(read(target))


def tracks(events: list[Event]) -> dict[str, list[tuple[float, float, str]]]:
    """(begin us, length us, name) of each track's slices, by the track's name."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["ph"] == "M"}
    found: dict[str, list[tuple[float, float, str]]] = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X":
            found[names[e["tid"]]].append((float(e["ts"]), float(e["dur"]), e["name"]))
    return found


def counters(events: list[Event]) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "C":
            found[e["name"]] += [(float(e["ts"]), value) for value in e["args"].values()]
    return found


def test_a_training_on_a_gpu_is_there_as_it_was(tmp_path: Path) -> None:
    found = drawn(tmp_path, str(write(tmp_path / "t.json", training(comm=100))))
    seen = tracks(found)
    assert list(seen) == ["findings", "steps", "phases", "your lines", "device idle: who is blamed", "main thread 1",
                          "device 0 stream 7"]  # fmt: skip
    assert seen["steps"] == [(1000.0 * i, 1000.0, f"step {i + 1} of 4{', the median' * (i == 1)}") for i in range(NUM)]
    assert seen["phases"][:2] == [(0, 300, "data"), (300, 50, "forward")]
    assert seen["device 0 stream 7"][:2] == [
        (320, 200, "volta_sgemm_128x64"), (520, 100, "ncclDevKernel_AllReduce_Sum_f32")]  # fmt: skip
    assert Counter(name.split("#")[0] for _, _, name in seen["main thread 1"]) == {
        "ProfilerStep": NUM, "enumerate(DataLoader)": NUM, "train.py(30): loop": NUM,
        "train.py(12): prepare": NUM, "torch/nn/functional.py(1): linear": NUM, "aten::mm": NUM,
        "cudaLaunchKernel": 2 * NUM, "Optimizer.step": NUM,
    }  # fmt: skip
    assert seen["device idle: who is blamed"][:3] == [
        (0, 300, "waits for data"), (300, 20, "ops that launch"), (620, 380, "Python and native code")]  # fmt: skip
    arrows = [(float(e["ts"]), e["ph"]) for e in found if e["ph"] in "sf" and e["ts"] < 1000]
    assert sorted(arrows) == [(310, "s"), (320, "f"), (330, "s"), (520, "f")]
    queue = counters(found)["launched, not begun by the device"]
    assert queue[:4] == [(310, 1), (320, 0), (330, 1), (520, 0)]


def test_a_findings_slices_lie_where_its_time_does(tmp_path: Path) -> None:
    found = drawn(tmp_path, str(write(tmp_path / "t.json", training(comm=100))))
    told = [e for e in found if e["ph"] == "X" and "code" in e.get("args", {})]
    waits = [e for e in told if e["args"]["place"] == WAITS]
    assert [(float(e["ts"]), float(e["dur"])) for e in waits] == [(1000, 300)]  # of the median step, the second
    assert {e["args"]["code"] for e in waits} <= {"BRR401", "BRR404", "BRR405"} and waits[0]["args"]["sentence"]
    assert waits[0]["args"]["expected back, ms per step"] > 0 and waits[0]["args"]["place"] == WAITS
    assert all((float(e["ts"]), float(e["dur"])) == (1000, 1000) for e in told if e["args"]["place"] == NOWHERE)


def of_cpu(folder: Path) -> Any:
    clock = Timeline()
    with clock.window(), clock.frame("main"):
        for _ in range(3):
            clock.line(10)
            with clock.wait():
                clock.run(40 * US)
            clock.line(11)
            with clock.module("Net"), clock.module("Net.head"):
                node = clock.node()
                clock.leaf("aten::mm", 20 * US, (8, 16), (16, 4), sequence=node)
            clock.line(12)
            with clock.backward():
                clock.leaf("MmBackward0", 30 * US, sequence=node, is_backward=True)
            clock.line(13, 10 * US)
            clock.boundary()
    return clock.recording(folder)


def judged(*findings: Finding) -> Report:
    from msgspec.structs import replace

    return replace(samples.balanced(), findings=findings)


def test_a_line_is_found_in_its_backward_too_and_a_finding_without_a_place_is_told_so(tmp_path: Path) -> None:
    from gobrrr.recording.model.facts import Span

    at_line = Finding(
        "BRR101", "a", "compute", "note", Saving(0, MS, 2 * MS), "It is slow.", where=(Span(FILE, 11, "main"),)
    )
    nowhere = Finding("BRR601", "b", "memory", "note", Saving(0, MS, 2 * MS), "It is large.")
    collective = Finding("BRR701", "c", "communication", "note", Saving(0, MS, MS), "It waits.")
    target = tmp_path / "x"
    target.write_bytes(b"".join(to_perfetto([(judged(at_line, nowhere, collective), of_cpu(tmp_path))], alone=True)))
    found = check(read(target))
    told = [
        (float(e["ts"]), float(e["dur"]), e["args"]["place"], e["args"]["code"])
        for e in found
        if "code" in e.get("args", {})
    ]
    zero = min(t for t, _, place, _ in told if place == NOWHERE)
    assert [(t - zero, d, p, c) for t, d, p, c in told] == [
        (0, 100, NOWHERE, "BRR601"), (0, 100, NOWHERE, "BRR701"), (40, 50, LINE, "BRR101")]  # fmt: skip
    assert tracks(found)["phases"][:3] == [
        (zero - 100, 40, "data"),
        (zero - 60, 20, "forward"),
        (zero - 40, 30, "backward"),
    ]
    args = {e["name"]: e["args"] for e in found if e["name"] in ("aten::mm", "MmBackward0")}
    assert args["aten::mm"] == {
        "shapes": "8x16 16x4",
        "line": "train.py:11 in main",
        "file": "train.py",
        "module": "Net.head",
    }
    assert args["MmBackward0"] == {"line": "train.py:11 in main", "file": "train.py", "module": "Net.head"}


def test_collectives_and_copies_are_where_the_device_does_them(tmp_path: Path) -> None:
    from gobrrr.recording.trace_files.offline import of_trace
    from gobrrr.recording.trace_files.sources import Source
    from gobrrr.recording.trace_files.sources import read as read_source

    recording = of_trace(read_source(Source(str(write(tmp_path / "t.json", training(comm=100))))))
    finding = Finding("BRR701", "c", "communication", "note", Saving(0, MS, MS), "It waits.")
    (tmp_path / "x").write_bytes(b"".join(to_perfetto([(judged(finding), recording)], alone=True)))
    told = [e for e in check(read(tmp_path / "x")) if "code" in e.get("args", {})]
    assert [(float(e["ts"]), float(e["dur"]), e["args"]["place"]) for e in told] == [(1520, 100, KIND)]


@pytest.mark.slow
@pytest.mark.parametrize("trace", REAL, ids=lambda path: path.name)
def test_real_traces_are_sound_and_no_event_is_lost(trace: Path, tmp_path: Path) -> None:
    found = drawn(tmp_path, str(trace), name="x.perfetto.json.gz")
    given = json.loads(gzip.decompress(trace.read_bytes()), strict=False)
    given = given["traceEvents"] if isinstance(given, dict) else given
    on_device = [
        e for e in given if str(e.get("cat", "")).lower() in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
    ]
    streams = {
        name: slices
        for name, slices in tracks(found).items()
        if name.startswith("device 0 stream") or " stream " in name
    }
    drawn_ = [each for name, slices in streams.items() if "annotations" not in name for each in slices]
    assert len(drawn_) == len([e for e in on_device if e.get("ph") == "X"])
    assert sum(d for _, d, _ in drawn_) == pytest.approx(
        sum(float(e["dur"]) for e in on_device if e["ph"] == "X"), rel=1e-6
    )


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=60)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(SPANS)
def test_whatever_overlaps_is_put_on_tracks_that_nest(spans: list[tuple[int, int]]) -> None:
    ordered = sorted(((a, a + d) for a, d in spans), key=lambda span: (span[0], -span[1]))
    found = lanes([a for a, _ in ordered], [b for _, b in ordered])
    events = [{"ts": a, "dur": b - a, "tid": lane} for (a, b), lane in zip(ordered, found, strict=True) if lane >= 0]
    from tests.report.perfetto.strict import _check_nesting

    _check_nesting(events)
    assert -1 not in found or max(found) == LANES - 1


def test_what_has_no_room_is_counted_and_has_no_arrow(tmp_path: Path) -> None:
    events = [event("ProfilerStep#0", 0, 1000, "user_annotation"), event("aten::mm", 1, 900)]
    for i in range(LANES + 3):  # each outlives the one before, on one stream
        events += [
            event("cudaLaunchKernel", 10 + 5 * i, 2, "cuda_runtime", correlation=i),
            kernel("k", 200 + i, 300 + i, i),
        ]
    found = drawn(tmp_path, str(write(tmp_path / "t.json", events)))
    assert sum(e["ph"] == "s" for e in found) == LANES
    assert any(e["name"] == "process_labels" and "3 events have no room" in e["args"]["labels"] for e in found)


def test_a_label_says_all_that_there_is_to_say_at_once(tmp_path: Path) -> None:
    """A rank on another clock, of whose kernels two have no room."""
    crowded = [event("ProfilerStep#0", 0, 1000, "user_annotation"), event("aten::mm", 1, 900)]
    crowded += [kernel("k", 200 + i, 300 + i, i) for i in range(LANES + 2)]
    files = [write(tmp_path / "0.json", training(comm=50)),
             write(tmp_path / "1.json", [e | {"ts": e["ts"] + 1e10} for e in crowded])]  # fmt: skip
    found = drawn(tmp_path, *map(str, files))
    assert [(e["pid"], e["args"]["labels"]) for e in found if e["name"] == "process_labels"] == [
        (2, "its clock is another one: it begins where the first does; 2 events have no room")]  # fmt: skip


@pytest.mark.parametrize("word", [*HOSTILE, "x" * 100_000, "\u202edrowssap", "a\x00b\x1b[31m", "\ud800"])
def test_hostile_names_are_strings_that_only_print(word: str, tmp_path: Path) -> None:
    events = [{**e, "name": word} if e["name"] in ("aten::mm", "volta_sgemm_128x64") else e for e in training()]
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode("utf-8", "replace"))
    drawn(tmp_path, str(path))
    (tmp_path / "y").write_bytes(
        b"".join(to_perfetto([(with_texts(samples.starved(), word), of_cpu(tmp_path))], alone=True))
    )
    check(read(tmp_path / "y"))


def test_a_text_is_cut_and_masked() -> None:
    assert len(json.loads(text("é" * 10_000))) == 512
    assert json.loads(text("my secret", lambda words: words.replace("secret", "x"))) == "my x"


def test_without_a_profiled_window_steps_and_findings_are_drawn(tmp_path: Path) -> None:
    clock = Timeline()
    clock.plain_steps(*[10 * MS] * 5, 50 * MS, wait=4 * MS)
    (tmp_path / "x").write_bytes(b"".join(to_perfetto([(samples.starved(), clock.recording(tmp_path))], alone=True)))
    found = check(read(tmp_path / "x"))
    seen = tracks(found)
    assert [name for _, _, name in seen["steps"]] == [f"step {i}" for i in range(1, 7)]
    assert {e["args"]["place"] for e in found if "code" in e.get("args", {})} == {NOWHERE}
    assert {float(e["dur"]) for e in found if "code" in e.get("args", {})} == {10_000}
    assert any(e["name"] == "process_labels" and e["args"]["labels"] == WHOLE for e in found)
    assert {e["args"].get("data wait") for e in found if e["name"].startswith("step ")} == {"4.00 ms"}


def test_a_report_alone_has_one_step_and_its_findings_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    from gobrrr.report.forms.json import to_json

    Path("report.json").write_bytes(to_json(samples.starved()))
    assert main(["report", ".", "-o", "x.perfetto.json.gz"]) == 0
    assert capsys.readouterr().err == f"gobrrr: {WHOLE}\n"
    assert tracks(check(read(Path("x.perfetto.json.gz"))))["steps"] == [(0, 62_000, "the median step")]


def test_without_any_step_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from msgspec.structs import replace

    from gobrrr.report.forms.json import to_json

    report = samples.balanced()
    (tmp_path / "report.json").write_bytes(to_json(replace(report, step=replace(report.step, plain_wall_ns=0))))
    target = tmp_path / "x.perfetto.json"
    target.write_text("before")
    assert main(["report", str(tmp_path), "-o", str(target)]) == 2
    assert "there is no step to draw" in capsys.readouterr().err
    assert target.read_text() == "before" and len(list(tmp_path.iterdir())) == 2  # nothing half written


def test_ranks_are_processes_on_one_clock(tmp_path: Path) -> None:
    for rank, shift in ((0, 0.0), (1, 250.0)):
        events = [e | {"ts": e["ts"] + shift} for e in training(comm=100)]
        write(tmp_path / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    found = drawn(tmp_path, str(tmp_path / "rank0.json"), str(tmp_path / "rank1.json"))
    names = [e["args"]["name"] for e in found if e["name"] == "process_name"]
    assert [name.split()[:2] for name in names] == [["rank", "0"], ["rank", "1"]]
    first = {pid: min(e["ts"] for e in found if e["ph"] == "X" and e["pid"] == pid) for pid in (1, 2)}
    assert first[2] - first[1] == 250


@pytest.mark.parametrize("begins", [(0, 1e10), (1e10, 0)], ids=["later", "earlier"])
def test_a_rank_with_another_clock_begins_with_the_first_and_says_so(
    begins: tuple[float, float], tmp_path: Path
) -> None:
    files = [
        write(tmp_path / f"{i}.json", [e | {"ts": e["ts"] + begin} for e in training(comm=50)])
        for i, begin in enumerate(begins)
    ]
    found = drawn(tmp_path, *map(str, files))
    first = {pid: min(e["ts"] for e in found if e["ph"] == "X" and e["pid"] == pid) for pid in (1, 2)}
    assert first[1] == first[2]
    assert [e["args"]["labels"] for e in found if e["name"] == "process_labels"] == [
        "its clock is another one: it begins where the first does"]  # fmt: skip


def test_a_rank_that_cannot_be_read_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path / "a.json", training()), tmp_path / "b.json"
    bad.write_text("{}")
    drawn(tmp_path, str(good), str(bad))
    assert "gobrrr: left out: " in capsys.readouterr().err
    assert (
        main(["diagnose", str(bad), str(bad.rename(tmp_path / "c.json")), "-o", str(tmp_path / "y.perfetto.json")]) == 2
    )
    assert not (tmp_path / "y.perfetto.json").exists()


@pytest.mark.parametrize(
    ("file", "form"),
    [("a.perfetto.json.gz", "perfetto"), ("A.Perfetto.JSON", "perfetto"), ("perfetto.json", "json"), ("a.json", "json"),
     ("x.perfetto.json/report.txt", "text")],
)  # fmt: skip
def test_the_longest_suffix_counts(file: str, form: str) -> None:
    assert formats.by_suffix(file) == form


def test_the_same_recording_makes_the_same_bytes_and_gz_is_the_same_document(tmp_path: Path) -> None:
    trace = str(write(tmp_path / "t.json", training()))
    drawn(tmp_path, trace, name="a.perfetto.json")
    for name in ("b.perfetto.json.gz", "c.perfetto.json.gz"):
        drawn(tmp_path, trace, name=name)
    packed = (tmp_path / "b.perfetto.json.gz").read_bytes()
    assert packed == (tmp_path / "c.perfetto.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.perfetto.json").read_bytes()


def test_a_receipt_has_no_such_form() -> None:
    from gobrrr.errors import GobrrrError

    with pytest.raises(GobrrrError, match="a receipt cannot be written in the format perfetto"):
        formats.check("perfetto", "receipt")


def test_it_is_written_in_small_pieces() -> None:
    sizes = [len(piece) for piece in document((f'{{"n":{i}}}' for i in range(100_000)), {})]
    assert len(sizes) > 5 and max(sizes) < 1 << 18


def test_what_is_masked_is_masked_everywhere(tmp_path: Path) -> None:
    view = View(mask=lambda words: words.replace("train", "xxxxx"), ranks=[(samples.starved(), of_cpu(tmp_path))])
    told = b"".join(formats.pieces(samples.starved(), "perfetto", view, "x.perfetto.json"))
    assert b"xxxxx.py" in told and b"train.py" not in told


def test_times_are_microseconds_with_their_nanoseconds(tmp_path: Path) -> None:
    assert [micros(ns) for ns in (0, 5, 50, 1_002_003, 10**18 + 1)] == [
        "0.000", "0.005", "0.050", "1002.003", "1000000000000000.001"]  # fmt: skip
    events = [event("ProfilerStep#0", 0, 100, "user_annotation"), event("aten::mm", 1.007, 2.03)]
    found = drawn(tmp_path, str(write(tmp_path / "t.json", events)))
    assert [(e["ts"], e["dur"]) for e in found if e["name"] == "aten::mm"] == [(Decimal("1.007"), Decimal("2.030"))]


def test_the_memory_that_tensors_held_is_a_counter(tmp_path: Path) -> None:
    rows = [(10, 1 << 20, 1 << 20), (1500, -(1 << 19), 1 << 19)]
    first = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1}
    of = {"Device Type": 1, "Device Id": 0, "Addr": 7, "Total Reserved": 4 << 20}
    memory = [
        {**first, "ts": t, "args": {**of, "Bytes": change, "Total Allocated": total}} for t, change, total in rows
    ]
    found = drawn(tmp_path, str(write(tmp_path / "t.json", [*training(), *memory])))
    assert counters(found)["device memory held by tensors"] == [(10, 1 << 20), (1500, 1 << 19)]


def test_zero_of_the_file_is_the_first_event(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"".join(to_perfetto([(None, of_cpu(tmp_path))], alone=True)))
    found = check(read(tmp_path / "x"))
    assert (
        min(e["ts"] for e in found if e["ph"] == "X") == Decimal(0) and OFFSET > 0 and np.iinfo(np.int64).max > OFFSET
    )
