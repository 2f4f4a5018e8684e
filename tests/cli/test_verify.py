"""What `gobrrr verify` says of a receipt, from what was measured here."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from pathlib import Path

import pytest

from gobrrr.cli.verbs.verify import OTHER_SCRIPT, _named, _typed, _verdict, run
from gobrrr.errors import GobrrrError
from gobrrr.guard.model.verdict import Guarded
from gobrrr.trial.race.tuning import Measured
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import EditTold, Receipt, Speedup

CLAIMED = Speedup(1.5, 1.4, 1.6)


def claim(speedup: Speedup = CLAIMED, memory: Speedup | None = None, numbers: str = "bounded", **fields) -> Receipt:
    """Of one remedy that was kept."""
    objective = "memory" if memory else fields.pop("objective", "time")
    return Receipt(kept=("compile",), speedup=speedup, memory=memory, guard=Guarded(numbers), objective=objective,
                   **fields)  # fmt: skip


@pytest.mark.parametrize(
    ("trial", "here", "numbers", "said"),
    [
        ("faster", Speedup(1.45, 1.3, 1.55), "exact", "holds"),
        ("faster", Speedup(1.2, 1.1, 1.3), "equivalent", "still faster, by another factor"),
        ("faster", Speedup(1.4, 1.3, 1.48), "exact", "holds"),  # 2 % is what two processes differ by
        ("faster", Speedup(1.4, 1.3, 1.46), "exact", "still faster, by another factor"),
        ("faster", Speedup(1.6, 1.54, 1.7), "exact", "still faster, by another factor"),
        ("faster", Speedup(1.5, 1.4, 1.6), "wrong", "does not hold here"),
        ("faster", Speedup(1.5, 1.4, 1.6), "unverified", "does not hold here"),
        ("slower", Speedup(0.8, 0.7, 0.9), "exact", "does not hold here"),
        ("equivalent", Speedup(1.0, 0.99, 1.01), "exact", "does not hold here"),
        ("inconclusive", Speedup(1.3, 0.9, 1.8), "exact", "open: why (--minutes)"),
        ("inconclusive", Speedup(1.3, 0.9, 1.8), "wrong", "does not hold here"),
    ],
)
def test_only_what_is_faster_with_its_numbers_intact_holds(trial: str, here: Speedup, numbers: str, said: str) -> None:
    found = Measured(verdict=trial, speedup=here, reason="why" if trial == "inconclusive" else "")
    assert _verdict(claim(), found, Guarded(numbers)) == said


@pytest.mark.parametrize("objective", ["time", "throughput"])
def test_a_claim_of_a_wide_interval_is_no_easier_to_hold(objective: str) -> None:
    found = Measured(verdict="faster", speedup=Speedup(2.23, 1.05, 4.74))
    forged = claim(Speedup(50.0, 1.0, 100.0), objective=objective)
    assert _verdict(forged, found, Guarded("bounded")) == "still faster, by another factor"


def test_numbers_that_are_worse_than_claimed_are_said() -> None:
    found = Measured(verdict="faster", speedup=CLAIMED)
    said = "holds, but numbers within rounding (claimed: match)"
    assert _verdict(claim(numbers="exact"), found, Guarded("bounded")) == said
    assert _verdict(claim(numbers="bounded"), found, Guarded("exact")) == "holds"
    assert _verdict(claim(numbers="perfect"), found, Guarded("exact")).endswith("but numbers match (claimed: perfect)")


SMALLER = Speedup(1.5, 1.45, 1.55)


@pytest.mark.parametrize(
    ("peak", "step", "said"),
    [
        (SMALLER, 0.8, "holds"),  # slower, and smaller as before
        (Speedup(1.2, 1.15, 1.25), 0.8, "still smaller, by another factor"),
        (Speedup(1.44, 1.42, 1.45), 0.8, "holds"),  # a heap lies otherwise each time, by 5 %
        (SMALLER, 0.6, "still smaller, but a step does not take what the receipt says"),
    ],
)
def test_of_memory_the_peaks_are_held_against_each_other_and_the_price(peak: Speedup, step: float, said: str) -> None:
    found = Measured(verdict="smaller", speedup=Speedup(step, step - 0.05, step + 0.05), memory=peak)
    assert _verdict(claim(Speedup(0.8, 0.1, 9.0), SMALLER), found, Guarded("exact")) == said


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (Receipt(kept=("compile",), speedup=CLAIMED, objective="memory"), "no figure of its objective, memory"),
        (Receipt(kept=("compile",), speedup=CLAIMED, memory=SMALLER), "no figure of its objective, time"),
        (claim(Speedup(5.0, 1.0, 2.0)), "outside its own interval"),
        (claim(CLAIMED, Speedup(0.0, 0.0, 0.0)), "outside its own interval"),
    ],
)
def test_figures_that_are_none_are_refused_before_anything_starts(forged: Receipt, why: str, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    receipts.write(forged, file)
    with pytest.raises(GobrrrError) as caught:
        run(Namespace(receipt=str(file), program=[]))
    assert why in caught.value.message


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_another_script_is_said_before_anything_runs(
    typed: bool, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    monkeypatch.chdir(tmp_path)
    digest = hashlib.sha256(script.read_bytes()).hexdigest() if same else "0" * 64
    receipt = claim(command=("python", "train.py"), folder=str(tmp_path), script_sha256=digest)
    if typed:
        _typed(receipt, ["train.py"])
    else:
        _named(receipt, Path("receipt.json"))
    assert (OTHER_SCRIPT in capsys.readouterr().err) is not same


@pytest.mark.parametrize("typed", [False, True])
def test_an_edit_of_a_strangers_receipt_is_shown_and_asked_for(
    typed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typed command says nothing of the lines that a receipt would put into it."""
    (tmp_path / "train.py").write_text("print()\n")
    monkeypatch.chdir(tmp_path)
    lines = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-print()\n+import os; os.system('x')\n"
    edits = {"a.diff": EditTold(lines, {"LD_PRELOAD": "/tmp/x.so"})}
    told = Receipt(verb="prove", kept=("a.diff",), speedup=CLAIMED, edits=edits, command=("python", "train.py"),
                   folder=str(tmp_path), guard=Guarded("exact"))  # fmt: skip
    receipts.write(told, tmp_path / "receipt.json")
    words = {"receipt": "receipt.json", "program": ["train.py"] if typed else [], "yes": False, "allowed": [],
             "unprotected": False}  # fmt: skip
    with pytest.raises(GobrrrError, match="nobody is at this terminal") as caught:
        run(Namespace(**words))
    assert caught.value.exit_code == 4
    shown = capsys.readouterr().err
    assert "+import os; os.system('x')" in shown and "LD_PRELOAD=/tmp/x.so" in shown


def test_a_receipt_of_an_objective_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    receipts.write(Receipt(kept=("compile",), speedup=CLAIMED, objective="beauty"), file)
    with pytest.raises(GobrrrError) as caught:
        run(Namespace(receipt=str(file), program=[]))
    assert "another objective than time, memory, throughput" in caught.value.message


@pytest.mark.parametrize(
    ("words", "folder", "why"),
    [
        (("python", "a\0b"), ".", "cannot be started"),
        (("python", "x" * (4 << 20)), ".", "cannot be started"),
        (("python", *["x"] * (1 << 20)), ".", "cannot be started"),
        (("python", "train.py"), "a\0b", "cannot be started"),
        (("python", "train.py"), "/", "none is made of /"),
        (("python", "train.py"), "/gone", "is gone"),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_line(words: tuple[str, ...], folder: str, why: str) -> None:
    with pytest.raises(GobrrrError) as caught:
        _named(Receipt(command=words, folder=folder), Path("receipt.json"))
    assert why in caught.value.message and len(caught.value.message) < 200
