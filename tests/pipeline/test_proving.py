"""`gobrrr prove`: a program and an edit in, a verdict, a receipt and an exit code out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

pytest.importorskip("torch")

from gobrrr.cli.verbs import prove, verify
from gobrrr.errors import GobrrrError
from gobrrr.guard.model.verdict import Guarded
from gobrrr.pipeline import proving
from gobrrr.pipeline.first_run import Clock
from gobrrr.report.forms import formats
from gobrrr.report.told import proof
from gobrrr.report.told.blocks import plainly
from gobrrr.trial.receipt.receipt import EditTold, Measured, Receipt, Speedup, StartUp, TrialResult

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(2048, 32), torch.randn(2048, 1))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(10_000):
    for x, y in loader:
        outputs = torch.stack([model(row) for row in x])
        loss = torch.nn.functional.mse_loss(outputs, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LOOP = "outputs = torch.stack([model(row) for row in x])"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def diff(folder: Path, name: str, new: str) -> str:
    (folder / name).write_text(f"--- a/train.py\n+++ b/train.py\n@@ -13,1 +13,1 @@\n-        {LOOP}\n+        {new}\n")
    return name


def gobrrr(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gobrrr", *words], cwd=cwd, capture_output=True, text=True)


def test_a_cheat_is_refused_and_its_kind_is_said(folder: Path) -> None:
    cheat = diff(folder, "cheat.diff", "outputs = model(x[:16]); y = y[:16]")
    done = gobrrr("prove", "--json", "--minutes", "9", "--patch", cheat, "train.py", cwd=folder)
    assert done.returncode == 6, done.stderr
    told = json.loads(done.stdout)
    assert told["guard"]["verdict"] == "wrong" and "512 elements in step 1" in told["guard"]["reasons"][0]
    said = "Refused; numbers wrong: data: models are given 512 elements in step 1, in the baseline 1,024"
    assert said in " ".join(done.stderr.split())
    assert (folder / "train.py").read_text() == PROGRAM


@pytest.mark.slow
def test_an_honest_edit_is_proven_and_its_receipt_verified(folder: Path) -> None:
    edit = diff(folder, "batched.diff", "outputs = model(x)")
    done = gobrrr("prove", "-o", "out", "--patch", edit, "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "times as fast" in done.stderr and "numbers match; proven in" in " ".join(done.stderr.split())
    again = gobrrr("verify", "--yes", "out/receipt.json", cwd=folder)
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no edit is given to prove"),
        (["--to", "HEAD"], "--to needs --from"),
        (["--accept", "speed", "--env", "A=B"], "'speed' is none of"),
        (["--rename", "a.weight", "--env", "A=B"], "cannot read 'a.weight'"),
        (["--patch", "none.diff"], "none.diff cannot be read"),
        (["--env", "A=1", "--env", "A=1"], "two edits have the same name"),
        (["--patch", "-", "--patch", "-"], "which can be read once"),
        (["--minutes", "1e308", "--env", "A=1"], "at most 1,000,000,000"),
        (["--accept", "accuracy >= 0.95", "--env", "A=1"], "how much may be lost"),
        (["--accept", "accuracy >= -1%", "--measure", "acc=.*", "--env", "A=1"], "has 0 groups"),
        (["--measure", "acc=(.*)", "--env", "A=1"], "1 --measure for 0 gates"),
        (
            ["--accept", "accuracy >= -1%", "--objective", "fit", "--env", "A=1"],
            "a gate judges a program that runs",
        ),
    ],
)
def test_a_mistake_is_told_in_a_line_and_starts_nothing(folder: Path, words: list[str], said: str) -> None:
    done = gobrrr("prove", *words, "train.py", cwd=folder)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (folder / ".gobrrr").exists()


FASTER = Speedup(1.4, 1.35, 1.45)


def receipt(*trials: TrialResult, kept: tuple[str, ...] = (), **more: object) -> Receipt:
    told = next((each.guard for each in trials), Guarded())
    edits = {trial.name: EditTold("--- a/x\n") for trial in trials}
    return Receipt(verb="prove", trials=trials, kept=kept, guard=told, edits=edits, seconds=186.0, **more)  # type: ignore[arg-type]


def tried(verdict: str, guard: str, speedup: Speedup | None = FASTER, reason: str = "", why: str = "") -> TrialResult:
    reasons = (why,) if why else ()
    return TrialResult(
        remedies=("a.diff",), purpose="final", verdict=verdict, guard=Guarded(guard, reasons), speedup=speedup,
        reason=reason,
    )  # fmt: skip


CASES = [
    (tried("faster", "equivalent"), True, 0, "1.40 times as fast (1.35 to 1.45); numbers match; proven in 3.1 min."),
    (tried("equivalent", "exact", Speedup(1.0, 0.99, 1.01)), False, 1,
     "Not faster, 1.00 times as fast (0.99 to 1.01); numbers match; judged in 3.1 min."),
    (tried("slower", "exact", Speedup(0.8, 0.7, 0.9)), False, 1,
     "Not faster, 0.80 times as fast (0.70 to 0.90); numbers match; judged in 3.1 min."),
    (tried("inconclusive", "changed", None, why="data: 16 of 32 samples"), False, 6,
     "Refused; numbers changed: data: 16 of 32 samples; judged in 3.1 min."),
    (tried("faster", "wrong", why="updates: w no longer moves"), False, 6,
     "Refused; numbers wrong: updates: w no longer moves; judged in 3.1 min."),
    (tried("inconclusive", "exact", Speedup(1.1, 0.9, 1.3)), False, 3,
     "Not settled, 1.10 times as fast (0.90 to 1.30); numbers match; judged in 3.1 min."),
    (tried("faster", "unverified", why="parameters: q is gone"), False, 3,
     "1.40 times as fast (1.35 to 1.45); numbers unverified: parameters: q is gone; judged in 3.1 min."),
    (tried("failed", "unverified", None, reason="with the remedy: NameError: x"), False, 5,
     "Does not run; with the remedy: NameError: x; judged in 3.1 min."),
]  # fmt: skip


@pytest.mark.parametrize(("trial", "kept", "code", "said"), CASES)
def test_each_outcome_has_its_sentence_and_code(trial: TrialResult, kept: bool, code: int, said: str) -> None:
    found = receipt(trial, kept=("a.diff",) if kept else (), measured=trial.verdict != "failed")
    assert plainly(proof.verdict(found)) == said
    assert prove.exit_code(found) == code
    assert said.split(";")[0] in formats.render(found, "text", formats.PLAIN).decode()
    assert b"a.diff" in formats.render(found, "html", formats.PLAIN)


def test_verify_and_prove_give_one_code_one_meaning() -> None:
    for trial, _, code, _ in CASES[:6]:
        measured = Measured(verdict=trial.verdict, speedup=trial.speedup)
        assert verify.exit_code(measured, trial.guard) == code


@pytest.mark.parametrize(("numbers", "code"), [
    ((2, 3), 6), ((1, 7), 5), ((1, 2, 7), 5), ((1, 5), 3), ((1, 2), 1), ((6, 2), 3), ((5, 3, 7), 6),
])  # fmt: skip
def test_of_several_edits_that_are_not_faster_the_gravest_gives_the_code(numbers: tuple[int, ...], code: int) -> None:
    trials = [CASES[number][0] for number in numbers]
    for order in (trials, trials[::-1]):
        assert prove.exit_code(receipt(*order)) == code


def test_a_pair_that_was_never_timed_does_not_lead() -> None:
    pair = msgspec.structs.replace(tried("inconclusive", "unverified", None, why="no time"), remedies=("both",))
    found = receipt(CASES[5][0], pair)
    assert plainly(proof.verdict(found)).startswith("a.diff: Not settled, 1.10 times as fast")


def test_the_steps_that_were_compared_are_said() -> None:
    trial = CASES[0][0]
    trial = msgspec.structs.replace(trial, guard=msgspec.structs.replace(trial.guard, steps=1230))
    assert "numbers match in the first 1,230 steps; proven" in plainly(proof.verdict(receipt(trial, kept=("a.diff",))))


@pytest.mark.parametrize(("guard", "kept"), [("exact", True), ("unverified", False), ("changed", False)])
def test_only_what_is_faster_with_the_same_numbers_is_kept(guard: str, kept: bool) -> None:
    trial = tried("faster", guard)
    report = SimpleNamespace(step=SimpleNamespace(plain_wall_ns=1e6))
    found = proving.receipt_of([trial], True, {}, report, Clock(0.0, 1.0), proving.Asked(()))
    assert bool(found.kept) is bool(found.speedup) is kept


def test_a_later_start_is_said(folder: Path) -> None:
    trial = msgspec.structs.replace(CASES[0][0], start_up=StartUp(3.2, 410.0))
    text = formats.render(receipt(trial, kept=("a.diff",)), "text", formats.PLAIN).decode()
    assert "it costs 3.2 s at the start and pays after 410 steps" in " ".join(text.split())


def test_options_behind_the_program_are_the_programs_and_it_is_said(folder: Path) -> None:
    done = gobrrr("prove", "train.py", "--patch", "a.diff", cwd=folder)
    assert done.returncode == 2 and "options stand before the program" in done.stderr


def test_several_edits_have_a_row_each() -> None:
    other = TrialResult(
        remedies=("b.diff",), purpose="final", verdict="inconclusive", guard=Guarded("wrong", ("data: x",))
    )
    found = receipt(CASES[0][0], other, kept=("a.diff",))
    text = formats.render(found, "text", formats.PLAIN).decode()
    assert text.startswith("a.diff: 1.40 times as fast") and "b.diff" in text and "Refused" in text


def test_a_receipt_of_two_commits_is_proven_again_by_prove(tmp_path: Path) -> None:
    from gobrrr.trial.race.referee import Program

    found = receipt(CASES[0][0], kept=("a.diff",))
    of_commits = Receipt(verb="prove", kept=("A..B",), edits={"A..B": EditTold(of_commits=True)})
    with pytest.raises(GobrrrError, match="two commits"):
        verify._with_edits(of_commits, Program((), tmp_path))
    with pytest.raises(GobrrrError):  # its diff is none
        verify._with_edits(found, Program((), tmp_path))
