"""`gobrrr top`: folders made by hand that grow, shrink and vanish; a /proc of our own; what a terminal shows."""

from __future__ import annotations

import itertools
import json
import os
from array import array
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.capture.session import recorder as recorder_module
from gobrrr.capture.session.journal import JournalWriter
from gobrrr.cli.main import main
from gobrrr.cli.verbs import top
from gobrrr.errors import GobrrrError
from gobrrr.pipeline.watching import Watching, folder_of, running
from gobrrr.recording.live import now
from gobrrr.recording.live.live_state import MOST_LOOPS
from gobrrr.recording.live.now import Now, Process
from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.run import load_run
from gobrrr.system import processes
from tests.recording.test_journal import frame
from tests.support.event_streams import MS, Program

PID, TICKS, BOOTED, NOW_S = 4242, 5000, 1_600_000_000, 1_600_000_100.0
HZ, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
HOSTILE = "\x1b]0;owned\x07\x1b[2Jtrain\u202e.py\n\x9b31m"


def start(**fields: Any) -> dict[str, Any]:
    began_s = BOOTED + TICKS / HZ
    return {"type": "start", "clock": [int(1e9 * (began_s + 2)), 10**12], "pid": PID, "began": TICKS, **fields}


def proc(folder: Path, pid: int = PID, ticks: int = TICKS, command: str = "python train.py --steps 9",
         state: str = "S", pages: int = 3000) -> Path:  # fmt: skip
    """A /proc in which this process is the only one, and ourselves."""
    for name in (str(pid), "self"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        fields = [state, *["0"] * 18, str(ticks), "0", str(pages)]
        (folder / name / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}")
        (folder / name / "cmdline").write_bytes(command.replace(" ", "\0").encode("utf-8", "replace") + b"\0")
    (folder / "stat").write_text(f"cpu 1 2\nbtime {BOOTED}\n")
    return folder


def written(folder: Path, *frames: Any, name: str = "rank0.journal", made_s: float = NOW_S) -> Path:
    """A journal of these records and events, written last at `made_s`."""
    folder.mkdir(exist_ok=True)
    with (folder / name).open("ab") as file:
        for one in frames:
            file.write(frame(b"E", np.asarray(one, "<i8").tobytes()) if isinstance(one, np.ndarray)
                       else frame(b"J", json.dumps(one).encode()))  # fmt: skip
    os.utime(folder / name, (made_s, made_s))
    return folder


def seen(watching: Watching) -> Now:
    watching.look()
    return watching.now()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return proc(tmp_path / "proc")


def watching(folder: Path, here: Path) -> Watching:
    return Watching(folder, lambda: NOW_S, str(here))


def test_a_running_program_is_told_as_its_recording_is(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(40)
    run = written(tmp_path / "run", start(), program.events)
    found = seen(watching(run, here))
    (one,), (told,) = found.processes, load_run(run)
    assert (found.state, found.program, one.pid, one.state) == (now.RUNNING, "train.py --steps 9", PID, now.RUNNING)
    assert told.main is not None and one.steps == len(told.main.steps) == 39
    assert one.late_ns == 10 * MS and one.median_ns == pytest.approx(10 * MS, rel=0.005)
    assert (one.parts[0].name, one.parts[0].ns) == ("data wait", 2 * MS)
    assert sum(part.ns or 0 for part in one.parts) == 10 * MS
    assert one.ran_ns == int(1e9 * (NOW_S - BOOTED - TICKS / HZ))
    assert one.rss_bytes == 3000 * PAGE, "of now, as the system has it"


def test_steps_are_counted_on_as_they_come(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(20)
    run = written(tmp_path / "run", start(), program.events)
    view = watching(run, here)
    before = seen(view).processes[0].steps
    program._journal.values.clear()
    program.train(20, wait=12)
    written(run, program.events)
    after = seen(view).processes[0]
    assert (before, after.steps) == (19, 39)
    assert after.late_ns == 20 * MS and after.change is not None and after.change > 0.5


def test_what_is_not_known_is_null_and_never_zero(tmp_path: Path, here: Path) -> None:
    run = written(tmp_path / "run", start())
    one = msgspec.to_builtins(seen(watching(run, here)).processes[0])
    unknown = ("late_ns", "median_ns", "change", "samples_per_s", "rss_growth", "device_bytes", "device_growth",
               "busy_cores", "other_cores", "starved", "device")  # fmt: skip
    assert {name: one[name] for name in unknown} == dict.fromkeys(unknown)


@pytest.mark.parametrize(("change", "state"), [
    ({}, now.RUNNING), ({"ticks": TICKS + 1}, now.ELSEWHERE), ({"pid": 17}, now.ELSEWHERE),
    ({"state": "Z"}, now.ELSEWHERE),
])  # fmt: skip
def test_a_pid_alone_is_nobody(change: dict[str, Any], state: str, program: Program, tmp_path: Path) -> None:
    program.train(5)
    run = written(tmp_path / "run", start(), program.events)
    found = seen(watching(run, proc(tmp_path / "proc", **change)))
    assert found.state == state


@pytest.mark.parametrize(("began_s", "state"), [(-5, now.RUNNING), (+5, now.ELSEWHERE)])
def test_of_an_older_recording_the_process_must_be_older_than_its_journal(
    began_s: float, state: str, tmp_path: Path
) -> None:
    moment = int(1e9 * (BOOTED + TICKS / HZ - began_s))
    run = written(tmp_path / "run", start(began=None, clock=[moment, 0]))
    assert seen(watching(run, proc(tmp_path / "proc"))).state == state


def test_who_was_seen_to_run_and_is_gone_has_ended(tmp_path: Path, here: Path) -> None:
    run = written(tmp_path / "run", start())
    view = watching(run, here)
    assert seen(view).state == now.RUNNING
    (here / str(PID) / "stat").unlink()
    assert seen(view).state == now.CUT
    written(run, {"type": "end", "reason": "exit"})
    assert seen(view).state == now.ENDED


def test_a_recording_that_nobody_writes_any_more_is_over(tmp_path: Path) -> None:
    run = written(tmp_path / "run", start(), made_s=NOW_S - 100)
    assert seen(watching(run, proc(tmp_path / "proc", pid=17))).state == now.CUT


def test_a_program_that_runs_on_unwatched_says_so(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(30)
    run = written(tmp_path / "run", start(), program.events, {"type": "end", "reason": "watched enough"})
    found = seen(watching(run, here))
    assert (found.state, found.processes[0].watching) == (now.RUNNING, now.OVER)
    assert "steps since are not counted" in top.render(found)


def test_a_journal_that_is_written_anew_is_read_anew(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(20)
    run = written(tmp_path / "run", start(), program.events)
    view = watching(run, here)
    assert seen(view).processes[0].steps == 19
    (run / "rank0.journal").unlink()
    written(run, start())
    assert seen(view).processes[0].steps == 0


def test_what_vanishes_is_said(tmp_path: Path, here: Path) -> None:
    run = written(tmp_path / "run", start())
    view = watching(run, here)
    view.look()
    (run / "rank0.journal").unlink()
    assert "its journal is gone: nothing new is known" in seen(view).processes[0].doubts
    run.rmdir()
    with pytest.raises(GobrrrError, match="is gone"):
        view.look()


def test_damage_is_a_doubt_and_another_version_is_an_error(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(5)
    run = written(tmp_path / "run", start(), program.events)
    with (run / "rank0.journal").open("ab") as file:
        file.write(b"Q" * 100)
    (one,) = seen(watching(run, here)).processes
    assert one.steps == 4 and any("cannot be read on" in doubt for doubt in one.doubts)
    (run / "rank0.journal").write_bytes(b"GOBRRR2\n" * 10)
    with pytest.raises(GobrrrError, match="no journal that this gobrrr reads"):
        watching(run, here).look()


def test_a_shared_machine_is_a_doubt(program: Program, tmp_path: Path, here: Path) -> None:
    second = 10**9
    program.train(30)
    program.recorder.flush()
    program._journal.values[:] = [
        v
        for row in np.array(program._journal.values).reshape(-1, 4).tolist()
        if row[1] not in (event_kinds.CPU, event_kinds.WAITED)
        for v in row
    ]
    cores = [(program.now + 100 * second + n * second, kind, 0, n * value) for n in range(1, 12)
             for kind, value in ((event_kinds.CPU, second), (event_kinds.BUSY, 2 * second),
                              (event_kinds.WAITED, second))]  # fmt: skip
    run = written(tmp_path / "run", start(), program.events, np.array(cores))
    (one,) = seen(watching(run, here)).processes
    assert (one.busy_cores, one.other_cores, one.starved) == (1.0, 1.0, 0.5)
    (doubt,) = one.doubts
    assert doubt == "CPU contention: threads waited for a core 50.0 % of the time"


def test_memory_grows_by_the_step_and_a_closer_look_is_not_growth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                                   here: Path) -> None:  # fmt: skip
    program = Program(monkeypatch, {200: (event_kinds.PROFILE, 40)})
    program.rss_per_step = 1 << 20
    program.train(150, wait=100)
    run = written(tmp_path / "run", start(), program.events)
    assert seen(watching(run, here)).processes[0].rss_growth == pytest.approx(1 << 20, rel=0.05)
    program._journal.values.clear()
    program.train(72, wait=100)  # in the middle of it
    written(run, program.events)
    assert seen(watching(run, here)).processes[0].rss_growth is None


def test_files_that_are_mapped_are_no_memory_that_grows(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, here: Path
) -> None:
    monkeypatch.setattr(recorder_module, "vitals", lambda: [*program._vitals(), (event_kinds.OWN, 1 << 29)])
    program.rss_per_step = 1 << 20
    program.train(150, wait=100)
    run = written(tmp_path / "run", start(), program.events)
    assert seen(watching(run, here)).processes[0].rss_growth == 0.0


def test_samples_are_those_of_the_batches_of_a_usual_step(program: Program, tmp_path: Path, here: Path) -> None:
    for _ in range(20):
        program.wait(0, 1)
        program.forward(4)
        program.wait(0, 1)
        program.forward(3)
        program.update(1)
    run = written(tmp_path / "run", start(), program.events, {"type": "facts", "loaders": [{"id": 0, "batch_size": 8}]})
    assert seen(watching(run, here)).processes[0].samples_per_s == pytest.approx(16 / 0.010)


def test_each_rank_has_a_line_and_the_first_is_told(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(10)
    run = tmp_path / "run"
    for rank in (1, 0, 2, 3, 4):
        written(run, start(rank=rank, pid=PID + rank), program.events, name=f"rank{rank}.journal")
    found = seen(watching(run, here))
    assert [one.rank for one in found.processes] == [0, 1, 2, 3, 4]
    lines = top.render(found).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("ranks"))
    assert [f"pid {PID + rank}" in line for rank, line in enumerate(lines[at : at + 5])] == [True] * 5
    assert "9 steps, 10.0 ms now" in lines[at + 2] and "20.0 % waiting for data" in lines[at]
    short = top.render(found, rows=len(lines) - 1).splitlines()
    assert (
        len(short) == len(lines) - 1
        and any("pid 4244" in line for line in short)
        and any("2 more with --json" in line for line in short)
    )


def test_where_rows_are_few_the_processes_keep_some(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(10)
    run = tmp_path / "run"
    for rank in range(5):
        written(run, start(rank=rank, pid=PID + rank), program.events, name=f"rank{rank}.journal")
    lines = top.render(seen(watching(run, here)), rows=8, keys=True).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("ranks"))  # a long path takes a row
    assert len(lines) == 8 and f"pid {PID}" in lines[first] and f"pid {PID + 1}" in lines[first + 1]
    assert "3 more with --json" in lines[first + 2] and lines[first + 3].startswith("next")


def test_nothing_hostile_reaches_the_terminal(program: Program, tmp_path: Path) -> None:
    program.train(5)
    note = {"type": "note", "text": HOSTILE}
    run = written(tmp_path / "run", start(device=HOSTILE), program.events, note)
    found = seen(watching(run, proc(tmp_path / "proc", command=f"python {HOSTILE} --password=secret")))
    assert "train" in found.program and "secret" not in found.program
    named = msgspec.structs.replace(found, program=HOSTILE, next=HOSTILE)  # as a folder may be
    for shown, ascii_only in itertools.product((found, named), (False, True)):
        text = top.render(shown, ascii_only=ascii_only)
        assert not set(text) & set("\x1b\x07\x9b\u202e") and "owned" not in text
        assert not ascii_only or text.isascii()


ANY = st.integers(-(2**63), 2**63 - 1)
EVENTS = st.lists(st.tuples(ANY, st.integers(0, 23), st.integers(-1, 3), ANY), max_size=40)
FIELDS = ["type", "loaders", "settings", "clock", "pid", "began", "rank", "reason"]
VALUES = ["start", "facts", "end", [1, 2], [{}], 10**400, None, {"cores": []}, -1]


@given(EVENTS, st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(VALUES)))
@settings(deadline=None)
def test_whatever_a_journal_holds_is_told_or_left_out(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, ...]], record: dict[str, Any]
) -> None:
    run = written(tmp_path_factory.mktemp("any") / "run", record, np.array(events, np.int64).reshape(-1, 4))
    found = seen(Watching(run, lambda: NOW_S))
    assert top.render(found).endswith("ended\n") or "judged it" in " ".join(top.render(found).split())
    from gobrrr.report.forms.json import as_json

    assert json.loads(as_json(found))["schema"] == "gobrrr.top/1"


def test_loops_without_number_take_no_room_without_end(tmp_path: Path, here: Path) -> None:
    events = [(n, event_kinds.BOUNDARY, n // 2, 1) for n in range(1, 2000)]
    view = watching(written(tmp_path / "run", start(), np.array(events)), here)
    view.look()
    assert len(view._watched["rank0.journal"].loops) == MOST_LOOPS


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_screen_is_no_wider_and_no_higher_than_it_may(width: int, ascii_only: bool) -> None:
    parts = tuple(now.Part(name, 1e6, 0.2) for name in ("data wait", "forward", "backward", "optimizer", "other"))
    one = Process(
        PID, 0, now.RUNNING, now.RESTING, 10**12, 10**9, "updates", 10**6, 32, 1e6, 1.1e6, 0.25, tuple([1e6] * 64),
        1e5, 16, parts, "NVIDIA H200", 1 << 30, 1024.0, 1 << 34, -3.0, 1.0, 1.0, 0.4, ("a long doubt " * 15,) * 6,
    )  # fmt: skip
    found = Now(
        ".gobrrr/run", "train.py " * 30, now.RUNNING, 0.5, (one,) * 20, 3, "gobrrr report .gobrrr/run when it has ended"
    )
    text = top.render(found, width=width, ascii_only=ascii_only, rows=24, keys=True)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) <= 24
    assert top.KEYS in " ".join(text.split())
    assert "-3.00 B per step" in top.render(found, width=100)


def test_the_folder_is_only_read(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(10)
    run = written(tmp_path / "run", start(), program.events)
    run.chmod(0o500)
    before = (
        [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(run.iterdir())],
        run.stat().st_mtime_ns,
    )
    seen(watching(run, here))
    assert (
        [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(run.iterdir())],
        run.stat().st_mtime_ns,
    ) == before
    run.chmod(0o700)


def test_the_newest_that_runs_is_found(tmp_path: Path) -> None:
    home = tmp_path / ".gobrrr"
    for name, pid, made in (("old", os.getpid(), 10), ("ended", 2**22 + 5, 30), ("new", os.getpid(), 20)):
        (home / name).mkdir(parents=True)
        (home / name / f"seen-{pid}.json").write_text("{}")
        os.utime(home / name, (made, made))
    assert running(home) == folder_of(home) == home / "new"
    assert folder_of(home / "ended") == home / "ended"
    os.utime(home / "new" / f"seen-{os.getpid()}.json", (10, 10))  # it says that it ran before we did
    assert running(home) == home / "old"


def test_what_is_no_run_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for words, said in (([], "no running program"), (["nowhere"], "no such folder"), (["file"], "is no folder"),
                        (["empty"], "holds no recording")):  # fmt: skip
        assert main(["top", *words]) == 2
        error, hint = capsys.readouterr().err.splitlines()
        assert said in error and hint.startswith("  hint: ")


def test_a_snapshot_where_there_is_no_terminal(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program.train(30)
    run = written(tmp_path / "run-20260101-000000", start(), program.events, {"type": "end", "reason": "exit"})
    assert main(["top", str(run)]) == 0
    text = capfd.readouterr().out
    assert text.startswith("program   run\n          ended after ")
    assert "29 steps, by updates" in text and "\x1b" not in text
    one_line = "".join(text.split())  # the path may be broken anywhere
    assert f"gobrrr report {run} as soon as".replace(" ", "") in one_line
    (run / "report.json").touch()
    for words in (["--json"], ["--format", "json"]):
        assert main(["top", str(run), *words]) == 0
        found = json.loads(capfd.readouterr().out)
        assert (found["schema"], found["state"], found["next"]) == ("gobrrr.top/1", "ended", f"gobrrr report {run}")


def test_a_program_without_a_step_so_far(tmp_path: Path, here: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".claim").touch()
    assert seen(watching(folder_of(run), here)).state == now.WAITING
    (run / f"seen-{PID}.json").write_text("{}")
    found = seen(watching(run, here))
    assert (found.state, found.program) == (now.WAITING, "train.py --steps 9")
    assert "has made no step yet for 5" in top.render(found)
    (here / str(PID) / "stat").unlink()
    assert seen(watching(run, here)).state == now.ENDED


def test_this_process_is_found_by_its_start() -> None:
    began = processes.began()
    found = processes.find(os.getpid())
    assert found is not None and found.began == began and found.rss_bytes > 1 << 20
    assert processes.command(os.getpid())
    assert processes.find(2**22 + 5) is None and processes.command(2**22 + 5) == []
    assert processes.began(2**22 + 5) is None


def test_a_journal_of_capture_is_what_is_read(tmp_path: Path, here: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    writer = JournalWriter(run / "rank0.journal")
    writer.json(start())
    writer.events(array("q", [value for n in range(1, 50) for value in (n * MS, event_kinds.BOUNDARY, 0, 1)]))
    assert seen(watching(run, here)).processes[0].steps == 48
    writer.close()


H100 = {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30, "limit_w": 700.0}
READ = {"busy": 0.87, "used": 12 << 30, "watts": 412.4, "clock_mhz": 1755, "celsius": 61}


def gauged(folder: Path, *lines: Any, head: Any = None, ago_s: float = 0.0, torn: bytes = b"") -> None:
    file = folder / "gauges.jsonl"
    told = [{"devices": [H100, {"name": "other"}]} if head is None else head, *lines]
    file.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in told) + torn)
    os.utime(file, (NOW_S - ago_s, NOW_S - ago_s))


def test_the_newest_gauges_are_a_line_for_each_device(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(5)
    run = written(tmp_path / "run", start(), program.events)
    assert seen(watching(run, here)).devices == () and "devices" not in top.render(seen(watching(run, here)))
    old = [{"t": i, "devices": [{"busy": 0.1}, {}]} for i in range(5000)]  # far more than is read
    gauged(run, *old, {"t": 5000, "devices": [READ, {"busy": 0.0, "used": 3 << 29}]}, torn=b'{"t":5001,"devices":[{"bu')
    found = seen(watching(run, here))
    text = top.render(found)
    assert "NVIDIA H100 80GB HBM3: busy 87 %, 412 of 700 W, 1,755 MHz, 61 °C, 12.0 of 80.0 GiB\n" in text
    assert "other: busy 0 %, 1.50 GiB\n" in text and "ago" not in text
    told = msgspec.json.decode(msgspec.json.encode(found))
    assert told["schema"] == "gobrrr.top/1" and told["devices_ns"] == 0
    assert told["devices"][0] == {**H100, **READ} and told["devices"][1]["watts"] is None


def test_gauges_that_stand_still_are_told_to(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(5)
    run = written(tmp_path / "run", start(), program.events)
    gauged(run, {"t": 1, "devices": [READ, {}]}, ago_s=42)
    text = top.render(seen(watching(run, here)))
    assert "61 °C, 12.0 of 80.0 GiB\n" in text and "read 42 s ago: the driver answers no more\n" in text
    gone = seen(watching(run, proc(tmp_path / "elsewhere", pid=17)))
    assert gone.devices == () and gone.devices_ns is None


@pytest.mark.parametrize(("head", "lines", "torn"), [
    (None, [], b""), ([], [{"t": 1, "devices": [{}, {}]}], b""), (None, [{"t": 1, "devices": [{}]}], b""),
    (None, [], b"\xff" * 200_000), ({"devices": 7}, [], b""), (None, [{"t": -1}], b'{"t":' + b"9" * 999 + b"}"),
])  # fmt: skip
def test_strange_gauges_are_none(
    head: Any, lines: list[Any], torn: bytes, program: Program, tmp_path: Path, here: Path
) -> None:
    program.train(5)
    run = written(tmp_path / "run", start(), program.events)
    gauged(run, *lines, head=head, torn=torn)
    found = seen(watching(run, here))
    assert found.devices == () and found.state == now.RUNNING


def test_names_of_devices_are_shown_as_text_and_many_are_counted(program: Program, tmp_path: Path, here: Path) -> None:
    program.train(5)
    run = written(tmp_path / "run", start(), program.events)
    gauged(run, {"t": 1, "devices": [READ] * 9}, head={"devices": [{"name": HOSTILE}] * 9})
    text = top.render(seen(watching(run, here)))
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert text.count("busy 87 %") == 8 and "1 more with --json" in text
