"""What findings say of stored runs: at most 25 words, and no word that only this house understands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.recording.run_folder.run import load_run
from gobrrr.rules import judge
from gobrrr.rules.model.finding import WORDS, fitting
from tests.snapshots.cases import RUNS
from tests.support.handmade import machine

OURS = re.compile(r"\b(headspace|crowded|strangers|close look|dear|come back|expected back)\b")
"""Words that docs/glossary.md has others for."""


@pytest.mark.parametrize("run", RUNS)
def test_no_finding_of_a_stored_run_says_more_than_25_words(run: str, shelf: Path) -> None:
    for recording in load_run(shelf / run):
        found, _ = judge(build_ledger(Profiled(recording), machine()), machine(), portability=True, strict=True)
        assert found
        for each in found:
            assert len(each.message.split()) <= WORDS, each.message
            assert all(len(said.split()) <= WORDS for said in re.split(r"[.?] ", each.advice)), each.advice
            assert not OURS.search(f"{each.message} {each.advice}")


def test_clauses_that_make_a_message_too_long_are_left_out_and_shorter_ones_after_them_are_not() -> None:
    base = " ".join(["word"] * (WORDS - 2))
    assert fitting(base, "; one two three", "; short one") == f"{base}; short one"
    assert fitting("a", "", " b") == "a b"
