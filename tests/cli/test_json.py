"""One JSON document on stdout, and nothing else there: reports, pages of codes, receipts, errors."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gobrrr.cli.main import main, wants_document
from gobrrr.cli.verbs import tune, verify
from gobrrr.guard.model.verdict import Guarded
from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.json import to_json
from gobrrr.trial.receipt.receipt import Measured, Receipt, Speedup
from tests.cli.conftest import PROGRAMS, Runner
from tests.snapshots.cases import TRACE
from tests.support import report_samples as samples
from tests.support.report_samples import finding

FINDING = {"code", "name", "bound", "severity", "saving", "message", "advice", "where", "evidence", "remedies",
           "confidence", "excerpt", "edits"}  # fmt: skip
RECEIPT = {"schema", "trials", "kept", "edits", "measured", "speedup", "guard", "complete", "command", "folder"}
ERROR = {"schema", "error", "hint", "exit_code"}


def document(text: str | bytes) -> dict[str, Any]:
    """The one document that a text is."""
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_a_run_leaves_stdout_to_the_report(gobrrr: Runner) -> None:
    done = gobrrr("run", "--json", PROGRAMS / "ends.py", "exit")
    report = document(done.out)
    assert done.code == report["exit_code"] == 7 and report["schema"] == "gobrrr.report/1"
    assert done.text.startswith("loss ") and "gobrrr report" in done.text


def test_findings_have_their_lines_and_edits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n\n\nopt = torch.optim.SGD([w])\nopt.zero_grad(set_to_none=False)\n")
    here = finding("BRR207", 5.0, remedies=("set_to_none",), where=(Span("train.py", 5, "train"),))
    report = msgspec.structs.replace(samples.starved(), findings=(here, samples.doubt("note")))
    Path("report.json").write_bytes(to_json(report))
    assert main(["report", "--json", "."]) == 0
    found, doubt = document(capsys.readouterr().out)["findings"]
    assert set(found) >= FINDING and set(doubt) >= FINDING
    assert found["excerpt"]["file"] == "train.py" and found["excerpt"]["line"] == 5
    assert found["excerpt"]["lines"][-1] == [5, "opt.zero_grad(set_to_none=False)"]
    (edit,) = found["edits"]
    assert set(edit) == {"remedy", "safety", "diff", "env"} and edit["remedy"] == "set_to_none"
    assert "\n+opt.zero_grad(set_to_none=True)\n" in edit["diff"]
    assert doubt["excerpt"] is None and doubt["edits"] == []
    script = Path("train.py").read_text()
    for secret in ("password = 'hunter22'\n", "mine = 1\n"):  # what a diff shows cannot be masked
        Path("train.py").write_text(script.replace("\n\n", f"\n\n{secret}"))
        assert main(["report", "--json", "--redact", "mine", "."]) == 0
        assert document(capsys.readouterr().out)["findings"][0]["edits"] == []


def test_a_run_without_a_step_is_an_error_with_the_programs_exit_code(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("print('a word')\nraise SystemExit(7)")
    done = gobrrr("run", "--json", "fails.py")
    error = document(done.out)
    assert set(error) == ERROR and error["exit_code"] == done.code == 7 and "nothing was recorded" in error["error"]
    assert "a word" in done.text


def test_with_a_file_stdout_stays_the_programs(gobrrr: Runner, tmp_path: Path) -> None:
    done = gobrrr("run", "--json", "out.json", PROGRAMS / "ends.py", "normally")
    assert done.out.startswith(b"loss ") and document((tmp_path / "out.json").read_bytes())["step"]["count"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("run --json train.py", True), ("run --json -m train", True), ("run --steps 3 --json -- train", True),
     ("run train.py --json", False), ("run -m train --json", False), ("run -- train --json", False),
     ("run --json base.json train.py", False), ("diagnose trace.json --json", True), ("explain --json BRR401", True),
     ("diagnose --json out.json trace.json", False), ("explain", False), ("", False)],
)  # fmt: skip
def test_a_document_is_wanted_where_our_option_says_so(line: str, wanted: bool) -> None:
    assert wants_document(line.split()) is wanted


@pytest.mark.parametrize(
    "line", ["run --json nowhere.py", "run --json --budget much nowhere.py", "diagnose nowhere.json --json",
             "explain --json BRR000", "tune --json nowhere.py", "verify --json nowhere.json", "explain --json --no"],
)  # fmt: skip
def test_an_error_is_a_document_too(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(line.split())
    out, err = capsys.readouterr()
    error = document(out)
    assert set(error) == ERROR and error["schema"] == "gobrrr.error/1" and error["exit_code"] == code == 2
    assert f"gobrrr: error: {error['error']}" in err and error["hint"]


def test_the_findings_of_a_trace_have_the_same_keys(
    shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shelf, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    assert main(["diagnose", TRACE, "--json"]) == 0
    report = document(capsys.readouterr().out)
    assert report["findings"] and all(set(each) >= FINDING for each in report["findings"])
    assert all(each["edits"] is None for each in report["findings"])  # nobody knows the program


def test_a_code_and_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--json", "405"]) == 0
    one = document(capsys.readouterr().out)
    assert set(one) == {"schema", "codes", "page"} and one["schema"] == "gobrrr.explanation/1"
    assert [each["code"] for each in one["codes"]] == ["BRR405"] and "## What it means" in one["page"]
    assert set(one["codes"][0]) == {"code", "name", "bound", "remedies"}
    assert main(["explain", "--json"]) == 0
    every = document(capsys.readouterr().out)
    assert every["page"] is None and "BRR405" in {each["code"] for each in every["codes"]} and len(every["codes"]) > 50


def test_a_tuning_gives_its_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gobrrr.pipeline import tuning

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    receipt = Receipt(kept=("compile",), speedup=Speedup(1.5, 1.4, 1.6))
    monkeypatch.setattr(tuning, "tune", lambda *_: Namespace(receipt=receipt))
    monkeypatch.setattr(tuning, "tell", lambda *_: None)
    assert main(["tune", "--json", "train.py"]) == tune.exit_code(receipt)
    told = document(capsys.readouterr().out)
    assert set(told) >= RECEIPT and told["schema"] == "gobrrr.receipt/1" and told["kept"] == ["compile"]


def test_what_is_verified_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Receipt(kept=("compile",), speedup=Speedup(1.5, 1.4, 1.6), guard=Guarded("bounded"))
    found = Measured(verdict="slower", speedup=Speedup(0.9, 0.8, 0.95)), Guarded("exact")
    monkeypatch.setattr(verify, "_repeated", lambda *_: found)
    assert verify._measured(before, None, tmp_path, Namespace(json=True)) == 1  # not better  # type: ignore[arg-type]
    told = document(capsys.readouterr().out)
    assert set(told) == {"schema", "verdict", "kept", "claimed", "here", "guard"}
    assert told["verdict"] == "does not hold here" and told["here"]["speedup"]["median"] == 0.9
