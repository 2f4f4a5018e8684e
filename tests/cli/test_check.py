"""`gobrrr check` on reports and traces: its exit codes, what it says, and what it refuses before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.cli.main import main
from gobrrr.cli.verbs import check
from gobrrr.report.forms.json import to_json
from tests.rules.test_regression import crowded, report
from tests.support import report_samples as samples

HERE = "0123456789abcdef"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Reports of one program, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gobrrr.machine.probe.fingerprint.of_hardware", lambda probed: HERE)
    known = {
        "base": report(100.0, lines={"aten::bmm": 20.0}), "same": report(101.0, lines={"aten::bmm": 20.1}),
        "slow": report(140.0, lines={"aten::bmm": 60.0}), "slower": report(160.0), "starved": samples.starved(),
        "unreliable": samples.unreliable(), "there": report(100.0, host="there"),
        "crowded": replace(report(140.0), findings=(crowded("warning", 0.5),)),
    }  # fmt: skip
    for name, each in known.items():
        (tmp_path / f"{name}.json").write_bytes(to_json(each))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--against base.json same.json", 0), ("--against base.json slow.json", 1),
        ("--against base.json unreliable.json", 3), ("--against base.json crowded.json", 3),
        ("--against base.json --tolerance 50 slow.json", 0),
        ("--against base.json --against slow.json slower.json", 1),
        ("--against base.json --against slower.json slow.json", 0),
        ("--against base.json --against unreliable.json same.json", 0),
        ("starved.json", 1), ("base.json", 0), ("unreliable.json", 3),
        ("--fail-on BRR305 starved.json", 1), ("--fail-on brr405,brr402 starved.json", 0),
        ("--fail-on warning starved.json", 1), ("--fail-on BRR201 --against starved.json starved.json", 1),
        ("--against starved.json starved.json", 0),
        ("--against base.json there.json", 2), ("--against there.json --shares base.json", 0),
        ("--fail-on nonsense base.json", 2), ("--fail-on BRR777 base.json", 2), ("--against gone.json base.json", 2),
        ("--tolerance -1 base.json", 2), ("base.json --against slow.json", 2), ("train.py --against base.json", 2),
        ("--against there.json train.py", 2),
    ],
)  # fmt: skip
def test_exit_codes(files: Path, words: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words.split()]) == code
    told = capsys.readouterr()
    assert told.err.count("\n") == (2 if code == 2 else 0), told.err
    if code != 2:
        assert f"(exit code {code})" in told.out


def test_a_regression_is_told_with_op_and_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--against", "base.json", "slow.json"])
    told = " ".join(capsys.readouterr().out.split())
    assert "Regression: a step takes 1.40 times as long as in the baseline (95 % interval 1.38 to 1.42)" in told
    assert "+40.0 ms bmm in forward, model.py:36 in Attention.forward (20.0 ms to 60.0 ms)" in told


def test_only_a_regression_against_all_baselines_is_told_elsewhere(
    files: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for others, code in (("slower.json", 0), ("same.json", 1)):
        words = f"check --against base.json --against {others} --format sarif slow.json"
        assert main(words.split()) == code
        assert (b'"ruleId": "regression"' in capsysbinary.readouterr().out) == bool(code)


def test_one_recording_is_checked_at_a_time(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "base.json", "slow.json"]) == 2
    assert "slow.json stands after base.json" in capsys.readouterr().err


def test_another_machine_is_refused_with_the_reason(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("open('started', 'w')")
    main(["check", "--against", "there.json", "train.py"])
    assert not Path("started").exists()
    told = capsys.readouterr().err
    assert "the baseline was recorded on another computer (Example CPU" in told and "--shares" in told


def test_what_is_no_report_is_told_as_what_it_is(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("cut.json").write_bytes(Path("base.json").read_bytes()[:900])
    Path("trace.json").write_text("[1]")
    (files / "empty").mkdir()
    for word, said in (("cut.json", "not a report"), ("empty", "neither a report of gobrrr nor a trace"),
                       ("train.sarif", "no such file")):  # fmt: skip
        assert main(["check", "--against", word, "base.json"]) == 2
        assert said in capsys.readouterr().err
    Path("job.nsys-rep").write_bytes(b"\0")
    assert main(["check", "job.nsys-rep"]) == 2
    assert "nsys export --type sqlite job.nsys-rep" in capsys.readouterr().err
    assert main(["check", "--against", "trace.json", "base.json"]) == 2
    assert "not a report" not in capsys.readouterr().err


def test_the_outcome_as_json_is_read_back(files: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["check", "--against", "base.json", "--format", "json", "slow.json"]) == 1
    found = json.loads(capsysbinary.readouterr().out)
    assert found["schema"] == "gobrrr.check/1" and (found["verdict"], found["exit_code"]) == ("failed", 1)
    held = found["against"][0]["held"]
    assert found["against"][0]["baseline"] == "base.json" and held["grown"][0]["what"] == "aten::bmm"
    assert main(["check", "--fail-on", "BRR305", "-o", "out.json", "starved.json"]) == 1
    assert [f["code"] for f in json.loads(Path("out.json").read_bytes())["findings"]] == ["BRR305"]
    assert b"exit code 1" in capsysbinary.readouterr().out


def test_a_defect_of_ours_is_no_regression(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "_recorded", lambda word: 1 / 0)
    assert main(["check", "base.json"]) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("code", [-2, 130])
def test_an_interrupted_program_is_no_verdict(files: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.capture.process.launch.run", lambda *_: code)
    Path("train.py").touch()
    assert main(["check", "train.py"]) == 130


def test_hostile_names_do_not_reach_the_terminal(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil.json").write_bytes(to_json(report(140.0, lines={"\x1b[31mmm\n::error::x": 60.0})))
    assert main(["check", "--against", "base.json", "evil.json"]) == 1
    told = capsys.readouterr().out
    assert "\x1b" not in told and "\n::error" not in told


@pytest.mark.parametrize(
    ("program", "kept"), [(["train.py"], ""), (["-m", "x"], ""), (["a.json"], "a.json"), (["t.json.gz"], "t.json.gz"),
                          (["."], "."), (["a.json", "b"], ""), ([], ""), (["package"], "")],
)  # fmt: skip
def test_what_is_a_recording_and_what_a_program(files: Path, program: list[str], kept: str) -> None:
    (files / "package").mkdir()
    (files / "package" / "__main__.py").touch()
    assert check._kept(program) == kept


def test_a_baseline_may_have_any_name(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not UTF-8, and one that turns the line round."""
    for name in ("b\udc80.json", "b\u202e.json"):
        (files / name).write_bytes((files / "base.json").read_bytes())
        assert main(["check", "--format", "json", "--against", name, "same.json"]) == 0
        told = capsys.readouterr().out
        assert "\u202e" not in told and json.loads(told)["against"][0]["baseline"] == name.replace("\udc80", "?")
