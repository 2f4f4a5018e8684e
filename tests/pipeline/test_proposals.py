"""Edits that a command proposes: asked once for each finding, with its JSON, in a copy of the folder."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gobrrr.pipeline import proposals
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.finding import Finding, Rehearsed, Saving
from gobrrr.rules.verdict.report import Report, Step, Verdict

DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-slow\n+fast\n"


def report(*codes: str) -> Report:
    found = tuple(Finding(code, "x", "overhead", "critical", Saving(1e5, 1e6, 2e6), "m") for code in codes)
    return Report(verdict=Verdict("overhead", ""), step=Step(10, 10**7, 10**7), findings=found)


def asked(tmp_path: Path, body: str, *codes: str, seconds: float = 60.0) -> tuple[list[proposals.Proposal], str]:
    source, told = tmp_path / "program", io.StringIO()
    source.mkdir()
    (source / "train.py").write_text("slow\n")
    (tmp_path / "agent.py").write_text(f"import json, os, sys\nasked = json.load(sys.stdin)\n{body}\n")
    command = f"{sys.executable} {tmp_path / 'agent.py'}"
    found = list(proposals.proposed(command, report(*codes), source, tmp_path, seconds, told))
    assert (source / "train.py").read_text() == "slow\n"
    return found, told.getvalue()


@pytest.mark.parametrize("text", [DIFF, f"Here it is:\n```diff\n{DIFF}```\nDone."])
def test_each_finding_is_asked_for_and_its_diff_taken(tmp_path: Path, text: str) -> None:
    body = f"assert asked['schema'] == 'gobrrr.finding/1' and asked['finding']['code'] == 'BRR101'\nprint({text!r})"
    found, told = asked(tmp_path, body, "BRR101")
    assert dict(found[0].edit.files) == {"train.py": b"fast\n"} and found[0].code == "BRR101"
    assert "(1 of 1)" in told


def test_the_command_works_in_a_copy(tmp_path: Path) -> None:
    body = f"open('train.py', 'w').write('changed'); assert asked['folder'] == os.getcwd(); print({DIFF!r})"
    assert asked(tmp_path, body, "BRR101")[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(3)", "ended with 3"),
        ("print('I would rather not')", "no diff"),
        ("", "empty"),
        ("print('--- a/x.py\\n+++ b/x.py\\n@@ -1 +1 @@\\n-a\\n+b\\n')", "x.py"),
    ],
)
def test_what_is_no_edit_is_told_and_the_next_one_asked_for(tmp_path: Path, body: str, said: str) -> None:
    found, told = asked(tmp_path, body, "BRR101", "BRR102")
    assert not found and told.count("no edit for") == 2 and said in told


def test_a_command_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    found, told = asked(tmp_path, "import time; time.sleep(600)", "BRR101", seconds=1.0)
    assert not found and "no answer within 1 s" in told


def test_two_edits_for_one_finding_exclude_each_other(tmp_path: Path) -> None:
    first, other = (asked(tmp_path / name, f"print({DIFF!r})", "BRR101")[0][0] for name in ("a", "b") if
                    (tmp_path / name).mkdir() is None)  # fmt: skip
    renamed = other._replace(edit=other.edit.__class__("other.diff", other.edit.files))
    assert first.candidate([first, renamed]).conflicts == {"other.diff"}


LOOP = "import torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.AdamW(m.parameters())\n"


@pytest.mark.parametrize(("live", "named", "offered"), [((), (), 1), (("fused_optimizer",), (), 0),
                                                        (("fused_optimizer",), ("foreach_optimizer",), 1)])  # fmt: skip
def test_an_edit_goes_behind_a_remedy_that_is_better(
    tmp_path: Path, live: tuple[str, ...], named: tuple[str, ...], offered: int
) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    finding = Finding("BRR208", "x", "bandwidth", "critical", Saving(1e5, 1e6, 2e6), "m", where=(Span("train.py", 3),),
                      remedies=("fused_optimizer", "foreach_optimizer"),
                      rehearsed=(Rehearsed("foreach_optimizer", Saving(1.0, 2.0, 3.0)),))  # fmt: skip
    told = Report(verdict=Verdict("bandwidth", ""), step=Step(10, 10**7, 10**7), findings=(finding,))
    found = list(proposals.of_catalogue(told, ["python", "train.py"], tmp_path, named, live))
    assert [each.edit.name for each in found] == ["foreach_optimizer"] * offered
    assert all(each.saving.expected_ns == 2.0 for each in found), "it was rehearsed"
