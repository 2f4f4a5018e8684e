"""Remedies that win elsewhere, on programs where they may lose: what `tune` says is held against the program's own
clock, with the remedy written into it by hand. Where a remedy does not lose on this chip there is nothing to reject."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.referee import LiveReferee, Program
from tests.trial.strangers import installed

PROGRAMS = Path(__file__).parent / "losers"
LOSES = 0.97
ROUNDS = 3
INT8 = """
import torch
from torch.nn import functional as F
from gobrrr.remedies.model import Remedy

class Int8Weights(Remedy):
    name, title, place = "stranger.int8_weights", "keeps weights in int8 and widens them in every call", "model"
    def apply(self, seams):
        def shrink(model):
            for layer in (m for m in model.modules() if type(m) is torch.nn.Linear):
                scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
                weight = (layer.weight.detach() / scale).round().to(torch.int8)
                layer.forward = lambda x, w=weight, s=scale, b=layer.bias: F.linear(x, w.to(x.dtype) * s, b)
            seams.applied(self.name)
        seams.at_model(shrink)
"""
CASES = [
    ("resnet18_bf16_compiled", 30, "compile", ()),
    ("bf16_sdpa", 60, "sdpa_attention", ()),
    ("more_workers", 1500, "loader_workers", ()),
    ("int8_weights", 300, "stranger.int8_weights", ()),
]


def own_clock(program: str, steps: int, by_hand: bool) -> float:
    """Milliseconds of a step, as the program itself measures them."""
    env = {**os.environ, "BY_HAND": "1" if by_hand else "0"}
    done = subprocess.run([sys.executable, str(PROGRAMS / f"{program}.py"), str(steps)], env=env, cwd=PROGRAMS,
                          capture_output=True, text=True, timeout=600, check=True)  # fmt: skip
    return float(done.stdout.split()[-1])


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody else's with one remedy."""
    installed(tmp_path, monkeypatch, "stranger", INT8, int8_weights="Int8Weights")


@pytest.mark.slow
@pytest.mark.parametrize(("program", "steps", "remedy", "onto"), CASES, ids=[case[0] for case in CASES])
def test_what_loses_by_the_programs_own_clock_is_not_kept(
    program: str, steps: int, remedy: str, onto: tuple[str, ...], tmp_path: Path, stranger: None
) -> None:
    pytest.importorskip("transformers")
    pairs = [(own_clock(program, steps, False), own_clock(program, steps, True)) for _ in range(ROUNDS)]
    ratio = statistics.median(plain / by_hand for plain, by_hand in pairs)
    if ratio > LOSES:
        pytest.skip(f"it does not lose on this machine: {ratio:.2f}")
    command = Program((sys.executable, f"{program}.py"), PROGRAMS, 1e6 * pairs[0][0])
    found = LiveReferee(command, tmp_path / "arms", seconds=20).measure(Plan(onto, (*onto, remedy)))
    assert found.verdict in ("slower", "inconclusive", "equivalent"), found
    assert found.speedup is not None and found.speedup.median < 1.05, (ratio, found.speedup)
