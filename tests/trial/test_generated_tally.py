"""A timed process counts the tokens that belong to answers, and its sequences the same way however they are batched."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import json, sys
import msgspec
from threading import get_ident
from types import ModuleType, SimpleNamespace
from gobrrr.trial.arm.tally import Tally
from tests.support import generation as library

utils = ModuleType("transformers.generation.utils")
utils.GenerationMixin = library.GenerationMixin
sys.modules[utils.__name__] = utils
recorder = SimpleNamespace(thread=get_ident(), update_end=lambda number: None)
tally = Tally(recorder, lambda ns: None)
tally.install()
tally.block_begins()
from gobrrr.data import generated

shared = "shared" in sys.argv
model, prompts = library.remembering(range(1, 11), 20) if shared else (library.writer(), library.prompts(10))
made = list(generated(model, prompts, int(sys.argv[1]), max_new_tokens=12))
row = tally._row()
true = sum(len(a[0]) - len(p[0]) for a, p in zip(made, prompts))
told = [true, tally.block_rows(), row.evaluated, row.by_model, row.given, row.made]
tally.block_begins()
import torch
linear = torch.nn.Linear(3, 3).eval()
with torch.no_grad():
    linear(torch.ones(7, 3))
told.append(tally.block_rows())
print(json.dumps(msgspec.to_builtins(told)))
"""


def counted(at_once: int, *more: str) -> list:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(at_once), *more], capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("at_once", [1, 4])
def test_tokens_behind_the_end_of_a_row_are_none_of_the_work(at_once):
    true, told, *_ = counted(at_once)
    assert told == true


def test_a_block_without_tokens_is_timed_by_its_rows():
    assert counted(4)[-1] == 7


@pytest.mark.parametrize("more", [(), ("shared",)])
def test_batches_leave_the_same_account(more):
    alone, together = counted(1, *more), counted(4, *more)
    assert alone[2:4] == together[2:4]
    assert (alone[2][:2], alone[3]) == ([10, 10], [10])
    assert alone[4] == pytest.approx(together[4])
    assert alone[5] == pytest.approx(together[5])
