"""`gobrrr history` over folders of runs, whatever lies in them; `gobrrr check --history` takes its baseline there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.capture.process import launch
from gobrrr.cli.main import main
from gobrrr.machine.probe.fingerprint import THREAD_COUNTS
from gobrrr.pipeline import runs
from gobrrr.recording.model.setup import Setup
from gobrrr.report.forms.json import to_json
from gobrrr.rules.verdict.report import Report
from tests.rules.test_history import COMMAND, run

HERE = "0123456789abcdef"
DAY = 86_400_000_000_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs, in the working directory of a computer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gobrrr.machine.probe.fingerprint.of_hardware", lambda probed: HERE)
    for name in THREAD_COUNTS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".gobrrr").mkdir()
    (tmp_path / "train.py").write_text("pass\n")
    return tmp_path / ".gobrrr"


def left(home: Path, name: str, report: Report | bytes) -> Path:
    (home / name).mkdir()
    (home / name / "report.json").write_bytes(report if isinstance(report, bytes) else to_json(report))
    return home / name


def of_day(day: int, wall_ms: float = 100.0, **changes: object) -> Report:
    return run(wall_ms, host=HERE, setup=Setup(day * DAY, commit=f"c{day}"), **changes)


def told(*words: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    return " ".join((out + err).split())


def as_json(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(told("history", "--format", "json", *words, capsys=capsys))
    return found


def numbers(found: dict[str, object]) -> list[list[tuple[int, str]]]:
    return [[(each["number"], each["folder"]) for each in program["runs"]] for program in found["programs"]]  # type: ignore[attr-defined]


def test_runs_stand_in_the_order_in_which_they_began_whatever_their_names(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, day in (("z", 1), ("a", 3), ("m", 2)):
        left(home, name, of_day(day))
    assert numbers(as_json(capsys=capsys)) == [[(1, "z"), (2, "m"), (3, "a")]]


def test_an_older_report_began_when_its_file_was_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, day in (("b", 1), ("a", 2)):
        os.utime(left(home, name, run()) / "report.json", ns=(day * DAY, day * DAY))
    assert numbers(as_json(capsys=capsys)) == [[(1, "b"), (2, "a")]]


def test_a_program_and_its_last_runs_can_be_chosen_and_keep_their_numbers(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(1, 6):
        left(home, f"t{day}", of_day(day))
    left(home, "other", of_day(9, command=("python", "src/other.py")))
    for name in ("train.py", "train"):
        assert numbers(as_json("--program", name, "--last", "2", capsys=capsys)) == [[(4, "t4"), (5, "t5")]]
    assert numbers(as_json("--program", "other", capsys=capsys)) == [[(1, "other")]]
    left(home, "t6", of_day(6, 150.0)), left(home, "t7", of_day(7, 150.0))
    text = told("history", "--program", "train", "--last", "1", capsys=capsys)
    assert "train.py: 1 run; a step is 1.50x slower" in text and "since run 6" in text
    refused = told("history", "--program", "none", capsys=capsys, code=2)
    assert "no run of none in .gobrrr" in refused and "src/other.py, train.py" in refused


def test_what_is_broken_hostile_or_half_written_is_a_line_and_ends_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = to_json(of_day(1))
    bad = {
        "text": b"hello", "cut": whole[:900], "deep": b"[" * 100_000, "older": whole.replace(b"report/1", b"report/0"),
        "typed": whole.replace(b'"exit_code": 0', b'"exit_code": "x"'), "huge": whole.replace(
            b'"exit_code": 0', b'"exit_code": 99999999999999999999'), "escape": b"\x1b]0;taken\x07",
    }  # fmt: skip
    for name, content in bad.items():
        left(home, name, content)
    left(home, "sound", of_day(1))
    os.mkfifo(left(home, "pipe", b"") / "x")
    (home / "pipe" / "report.json").unlink()
    (home / "pipe" / "x").rename(home / "pipe" / "report.json")
    (home / "running").mkdir()
    (home / "running" / ".claim").touch()
    (home / "loop").mkdir()
    (home / "loop" / "report.json").symlink_to("report.json")
    for name, file in (("tune-train", "journal.jsonl"), ("sweep", "sweep.json"), ("notes", "notes.txt")):
        (home / name).mkdir()
        (home / name / file).touch()
    found = as_json(capsys=capsys)
    assert numbers(found) == [[(1, "sound")]]
    assert {name for name, _ in found["unread"]} == {*bad, "pipe", "running"}  # type: ignore[attr-defined]
    text = told("history", capsys=capsys)
    assert "running: no report: it is still running, or ended before it was judged" in text
    assert "\x1b" not in text and "train.py: 1 run" in text


def test_odd_figures_of_a_report_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day, (low, middle, high) in enumerate(((0, 0, 0), (-5, -4, -3), (9, 3, 1), (1, 1 << 62, 1 << 62)), 1):
        step = replace(of_day(day).step, plain_wall_ns=middle, low_ns=low, high_ns=high)
        left(home, f"odd{day}", of_day(1 - 10_000 * day, step=step, command=()))
    for form, said in (("text", "?: 4 runs"), ("html", "odd4"), ("markdown", "4 runs")):
        assert said in told("history", "--format", form, capsys=capsys)


@pytest.mark.parametrize(
    ("words", "why"),
    [(["gone"], "cannot read gone: No such file or directory"), (["train.py"], "cannot read train.py"),
     ([], ".gobrrr holds no runs"), ([".gobrrr/one"], ".gobrrr/one holds no runs"), (["--last", "0"], "--last"),
     (["--format", "sarif"], "invalid choice: 'sarif'")],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused_in_a_line(
    home: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if words == [".gobrrr/one"]:
        left(home, "one", of_day(1))
    assert why in told("history", *words, capsys=capsys, code=2)


def test_the_page_is_written_into_a_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(home, "one", of_day(1))
    left(home, "two", of_day(2, 150.0))
    assert told("history", "-o", "history.html", capsys=capsys) == ""
    assert "a step is 1.50x slower" in Path("history.html").read_text()


def test_check_takes_the_newest_sound_run_of_the_same_command_here_as_its_baseline(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left(home, "first", of_day(1, 100.0))
    left(home, "second", of_day(2, 150.0))
    left(home, "failed", of_day(3, 10.0, exit_code=1))
    left(home, "other", of_day(4, 10.0, command=(*COMMAND, "--fast")))
    left(home, "there", run(10.0, host="there", setup=Setup(5 * DAY)))
    now = left(home, "now", of_day(6, 152.0))
    left(home, "later", of_day(7, 10.0))
    passed = told("check", "--history", str(now), capsys=capsys)
    assert "against .gobrrr/second" in passed and "(exit code 0)" in passed
    slower = told("check", "--history", str(home / "second" / "report.json"), capsys=capsys, code=1)
    assert "against .gobrrr/first" in slower and "1.50 times as long" in slower


def test_check_looks_for_its_baseline_before_it_starts_the_program(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "run", lambda *args: pytest.fail("it was started"))
    left(home, "one", of_day(1, command=("python", "train.py", "--batch", "32")))
    refused = told("check", "--history", "train.py", capsys=capsys, code=2)
    assert ".gobrrr holds no run to rely on of this command here" in refused
    assert "cannot read runs" in told("check", "--history=runs", "train.py", capsys=capsys, code=2)
    left(home, "two", of_day(2, command=("python", "train.py")))
    started: list[object] = []
    monkeypatch.setattr(launch, "run", lambda *args: started.append(args) or 1)
    told("check", "--history", "train.py", capsys=capsys, code=3)
    assert started


@pytest.mark.parametrize(("before", "code"), [(100.0, 1), (150.0, 0)])
def test_a_run_that_check_did_not_find_steady_is_no_baseline_of_the_next(
    before: float, code: int, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("python", "train.py")
    days = iter((2, 3))
    monkeypatch.setattr(launch, "run", lambda *args: 0)
    monkeypatch.setattr(runs, "explain", lambda folder, *args, **kwargs: (folder / "report.json").write_bytes(
        to_json(of_day(next(days), 150.0, command=command))))  # fmt: skip
    left(home, "first", of_day(1, before, command=command))
    for _ in range(2):
        said = told("check", "--history", "train.py", capsys=capsys, code=code)
        assert code == 0 or "against .gobrrr/first" in said
    marks = [file.parent.name for file in home.glob("*/no-baseline")]
    assert len(marks) == (2 if code else 0)


def test_counts_of_threads_of_this_environment_choose_the_baseline(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "run", lambda *args: pytest.fail("it was started"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    eight = Setup(DAY, variables={"OMP_NUM_THREADS": "8"})
    left(home, "eight", run(60.0, host=HERE, setup=eight, command=("python", "train.py")))
    assert "with these threads and remedies" in told("check", "--history", "train.py", capsys=capsys, code=2)
