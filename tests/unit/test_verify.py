"""What `gobrrr verify` says of a receipt, from what was measured here."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from gobrrr.cli.verify import _named, _verdict, command
from gobrrr.errors import GobrrrError
from gobrrr.guard.model import Guarded
from gobrrr.trial import receipt as receipts
from gobrrr.trial.receipt import Receipt, Speedup
from gobrrr.trial.tuning import Measured

RECEIPT = Speedup(1.5, 1.4, 1.6)


@pytest.mark.parametrize(
    ("trial", "here", "numbers", "said"),
    [
        ("faster", Speedup(1.45, 1.3, 1.55), "exact", "holds"),
        ("faster", Speedup(1.2, 1.1, 1.3), "equivalent", "still faster, by another factor"),
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
    assert _verdict(RECEIPT, found, Guarded(numbers)) == said


def test_of_memory_the_peaks_are_held_against_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Slower, and smaller as before: that holds."""
    found = Measured(verdict="smaller", speedup=Speedup(0.8, 0.7, 0.9), memory=Speedup(1.5, 1.45, 1.55))
    assert _verdict(RECEIPT, found, Guarded("exact")) == "holds"
    less = Measured(verdict="smaller", speedup=Speedup(0.8, 0.7, 0.9), memory=Speedup(1.2, 1.15, 1.25))
    assert _verdict(RECEIPT, less, Guarded("exact")) == "still smaller, by another factor"


def test_a_receipt_of_an_objective_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    receipts.write(Receipt(kept=("compile",), speedup=RECEIPT, objective="beauty"), file)
    with pytest.raises(GobrrrError) as caught:
        command.run(Namespace(receipt=str(file), program=[]))
    assert "another objective than time, memory, throughput" in caught.value.message


@pytest.mark.parametrize(
    ("words", "folder", "why"),
    [
        (("python", "a\0b"), ".", "no computer starts"),
        (("python", "x" * (4 << 20)), ".", "no computer starts"),
        (("python", *["x"] * (1 << 20)), ".", "no computer starts"),
        (("python", "train.py"), "a\0b", "no computer starts"),
        (("python", "train.py"), "/", "none is made of /"),
        (("python", "train.py"), "/gone", "is gone"),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_line(words: tuple[str, ...], folder: str, why: str) -> None:
    with pytest.raises(GobrrrError) as caught:
        _named(Receipt(command=words, folder=folder), Path("receipt.json"), Namespace(yes=True))
    assert why in caught.value.message and len(caught.value.message) < 200
