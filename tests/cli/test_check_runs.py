"""`gobrrr check` of a program that runs: against its own baseline, slower, and failing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import PROGRAMS, Runner

SLOWER = PROGRAMS / "slower.py"
CROWDED = "BRR905"


def alone(file: Path) -> bool:
    """Takes the doubt that others had the cores out of a report, for the machine of a test is never its own; whether
    there was none that counts."""
    report = json.loads(file.read_bytes())
    doubts = [finding["severity"] for finding in report["findings"] if finding["code"] == CROWDED]
    report["findings"] = [finding for finding in report["findings"] if finding["code"] != CROWDED]
    file.write_text(json.dumps(report))
    return doubts in ([], ["note"])


def test_a_program_that_sleeps_longer_is_a_regression_at_its_line(gobrrr: Runner, tmp_path: Path) -> None:
    assert gobrrr("run", "--json", "base.json", SLOWER, "0.01").code == 0
    alone(tmp_path / "base.json")
    against = ("check", "--no-rehearsal", "--against", "base.json", "--tolerance", "50")
    same = gobrrr(*against, SLOWER, "0.01")
    assert same.code == 0 and same.out == b"trained\n" and "No regression" in same.text, same.text
    longer = gobrrr(*against, SLOWER, "0.04")
    latest = max((tmp_path / ".gobrrr").glob("slower-*/report.json"), key=lambda path: path.stat().st_mtime_ns)
    assert longer.code == (1 if alone(latest) else 3) and longer.out == b"trained\n", longer.text
    again = gobrrr(*against, latest)  # what it has seen is kept, and checked again
    told = " ".join(again.out.decode().split())
    assert again.code == 1 and "Regression: a step takes" in told, told
    assert "slower.py:16 in dawdle" in told


def test_a_program_that_fails_or_makes_no_step_is_no_verdict(gobrrr: Runner, tmp_path: Path) -> None:
    text = SLOWER.read_text().replace("__file__", repr(str(SLOWER)))
    (tmp_path / "fails.py").write_text(text.replace('print("trained")', "sys.exit(1)"))
    failed = gobrrr("check", "--no-rehearsal", "fails.py", "0.001")
    assert failed.code == 3 and "the program ended with 1" in failed.text
    (tmp_path / "nothing.py").write_text("print('nothing')")
    assert gobrrr("check", "nothing.py").code == 3
