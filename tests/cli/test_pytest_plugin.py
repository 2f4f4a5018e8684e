"""`pytest --gobrrr` on small trainings that really run, and what it says of reports made by hand."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.integrations import pytest_plugin as plugin
from gobrrr.integrations.pytest_plugin import Limits, limits, verdict
from gobrrr.rules.model.finding import Finding
from tests.rules.test_regression import crowded
from tests.support import report_samples as samples

pytest_plugins = ("pytester",)
INSTALLED = any(entry.value == plugin.__name__ for entry in importlib.metadata.entry_points(group="pytest11"))
WORDS = () if INSTALLED else ("-p", plugin.__name__)
TRAINING = """
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(64)


def train():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(Slow(), batch_size=8):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
"""


@pytest.fixture
def trainings(pytester: pytest.Pytester, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for tests, with this machine's ceilings at hand."""
    monkeypatch.setenv("OMP_NUM_THREADS", env["OMP_NUM_THREADS"])
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider")
    return pytester


@pytest.mark.slow
def test_a_training_that_waits_fails_and_one_that_may_passes(trainings: pytest.Pytester) -> None:
    trainings.makepyfile(
        TRAINING
        + """
@pytest.mark.gobrrr(max_data_wait=0.2)
def test_waits():
    train()


@pytest.mark.gobrrr(max_data_wait=0.99, no=["BRR801"])
def test_may_wait():
    train()


@pytest.mark.gobrrr(max_data_wait=0.99)
def test_makes_no_step():
    pass


@pytest.mark.gobrrr(max_data_wait=0.0)
def test_is_wrong_itself():
    train()
    assert 1 == 2


def test_is_not_watched():
    pass
"""
    )
    result = trainings.runpytest_subprocess(*WORDS, "--gobrrr")
    text = result.stdout.str()
    outcomes = result.parseoutcomes()
    waits = re.search(r"data wait has \d\d\.\d % of the step \([^)]*\), 20.0 % is allowed", text)
    assert waits, text
    alone = "test_waits  no verdict: " not in text  # else the cores were others' too, and nothing is said of a wait
    assert (outcomes["failed"], outcomes["passed"]) == ((3, 2) if alone else (2, 3)), text
    assert "gobrrr: nothing was recorded: the program made no step" in text and "assert 1 == 2" in text
    lines = [line for line in text.splitlines() if re.search("  no verdict: |  no step| a step: ", line)]
    names = ["test_waits", "test_may_wait", "test_makes_no_step"]
    assert [line.split("::")[1].split()[0] for line in lines] == names
    kept = sorted(path.parent.name for path in (trainings.path / ".gobrrr").glob("*/report.json"))
    assert [name.split("-")[0] for name in kept] == ["test_may_wait", "test_waits"]


def test_without_the_switch_nothing_is_watched_or_imported(trainings: pytest.Pytester) -> None:
    trainings.makepyfile("""
import sys

import pytest


@pytest.mark.gobrrr(max_data_wait=0.0)
def test_runs_as_any_other():
    heavy = {"torch", "numpy", "rich", "msgspec", "gobrrr.capture", "gobrrr.rules.verdict.report", "gobrrr.cli"}
    assert not heavy & set(sys.modules)
""")
    trainings.runpytest_subprocess(*WORDS).assert_outcomes(passed=1)
    assert not (trainings.path / ".gobrrr").exists()


@pytest.mark.parametrize(
    ("mark", "said"),
    [(pytest.mark.gobrrr(max_data_wiat=0.1), "no account of that name; there are max_data_wait, max_compute"),
     (pytest.mark.gobrrr(max_sync=10), "max_sync=10 is no share of the step"),
     (pytest.mark.gobrrr(no=["BRR4"]), "neither codes"), (pytest.mark.gobrrr(no=["BRR045"]), "neither codes"),
     (pytest.mark.gobrrr(no=None), "neither codes"), (pytest.mark.gobrrr(0.1), "neither codes"),
     (pytest.mark.gobrrr(no=["loud"]), "neither codes")],
)  # fmt: skip
def test_a_marker_that_means_nothing_is_refused(mark: pytest.MarkDecorator, said: str) -> None:
    with pytest.raises(pytest.UsageError, match=re.escape(said)):
        limits(mark.mark, "t.py")


def test_a_marker_that_means_nothing_ends_the_run(trainings: pytest.Pytester) -> None:
    trainings.makepyfile("import pytest\n\n@pytest.mark.gobrrr(no=['BRR4'])\ndef test_it():\n    pass\n")
    result = trainings.runpytest_subprocess(*WORDS, "--gobrrr")
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "neither codes" in result.stderr.str()
    trainings.runpytest_subprocess(*WORDS).assert_outcomes(passed=1)


@pytest.mark.parametrize("ended", [False, True])
def test_where_the_whole_run_is_watched_no_test_is_until_that_has_ended(
    trainings: pytest.Pytester, ended: bool
) -> None:
    """Under `gobrrr run`. A test that makes no step fails where it is watched itself."""
    trainings.makeconftest(f"""
from types import SimpleNamespace

from gobrrr.capture.process import bootstrap


def pytest_runtest_setup(item):
    bootstrap.session = SimpleNamespace(ended={ended})
""")
    trainings.makepyfile("import pytest\n\n@pytest.mark.gobrrr\ndef test_it():\n    pass\n")
    result = trainings.runpytest_subprocess(*WORDS, "--gobrrr")
    result.assert_outcomes(failed=int(ended), passed=int(not ended))
    assert ("the program made no step" in result.stdout.str()) is ended


@pytest.mark.slow
def test_lines_come_from_the_workers_of_xdist_too(trainings: pytest.Pytester) -> None:
    trainings.makepyfile(TRAINING + "\n\n@pytest.mark.gobrrr(max_data_wait=1.0)\ndef test_it():\n    train()\n")
    result = trainings.runpytest_subprocess(*WORDS, "--gobrrr", "-p", "xdist", "-n", "1")
    result.assert_outcomes(passed=1)
    assert "::test_it  " in result.stdout.str() and " a step: " in result.stdout.str()


def broken(allowed: Limits, *findings: Finding) -> tuple[str, ...]:
    report = samples.starved()
    return verdict(replace(report, findings=(*report.findings, *findings)), allowed).broken


def test_limits_are_of_accounts_and_findings() -> None:
    assert broken(Limits({"data_wait": 0.7}, ())) == broken(Limits({"sync": 0.0}, ("BRR501",))) == ()
    (share,) = (account.share for account in samples.starved().ledger if account.account == "data_wait")
    assert broken(Limits({"data_wait": share}, ())) == ()  # at most so much
    assert broken(Limits({"data_wait": 0.1}, ())) == ("data wait has 66.5 % of the step (41.2 ms), 10.0 % is allowed",)
    (critical,) = broken(Limits({}, ("critical",)))
    assert critical.startswith("BRR401 data-wait at train.py:41 in main: The loop waited 41.2 ms per step")
    assert len(broken(Limits({}, ("BRR305", "critical")))) == 2


def test_where_nothing_can_be_said_nothing_fails() -> None:
    unreliable = verdict(samples.unreliable(), Limits({"data_wait": 0.0}, ("note",)))
    assert unreliable.broken == () and unreliable.why_not
    beside = replace(samples.starved(), findings=(crowded("warning", 0.5),))
    found = verdict(beside, Limits({"data_wait": 0.1}, ()))
    assert found.broken == () and "other processes kept 1.7 cores busy; data wait has 66.5 %" in found.why_not
    assert verdict(beside, Limits({"data_wait": 0.9}, ())).why_not == ""  # what holds beside others holds
    note = replace(samples.starved(), findings=(crowded("note", 0.1),))
    assert verdict(note, Limits({"data_wait": 0.1}, ())).broken


def test_one_word_is_a_list_of_one() -> None:
    mark = pytest.Mark("gobrrr", (), {"no": "critical", "max_sync": 0}, _ispytest=True)
    assert limits(mark, "t.py") == Limits({"sync": 0.0}, ("critical",))


def test_pytest_finds_it_by_its_entry_point() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'\[project\.entry-points\.pytest11\]\ngobrrr = "([\w.]+)"', text)
    assert found and importlib.import_module(found[1]) is plugin
