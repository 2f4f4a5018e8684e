"""The live referee on an unmodified program: remedies that spoil the numbers are caught, good ones are not."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr.guard.model.verdict import Guarded
from gobrrr.trial.arm.arm import SPENT, ArmError
from gobrrr.trial.race.guard_runs import Watched
from gobrrr.trial.race.headroom import REPLAYED
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.referee import LiveReferee, Program
from tests.trial.strangers import installed

PROGRAM = '''
"""A classifier with batch norm and dropout, unseeded, that keeps a log."""
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                          torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(512, 12), torch.randint(0, 4, (512,)))
while True:
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
'''
EVIL = """
import torch
from gobrrr.remedies.model import Remedy

class DoubledGradients(Remedy):
    name, title = "evil.doubled", "doubles every gradient"
    def apply(self, seams):
        def twice(parameter):
            parameter.grad.mul_(2)
        def double(module):
            for p in module.parameters():
                p.register_post_accumulate_grad_hook(twice)
            seams.applied(self.name)
        seams.at_model(double)

class EvalMode(Remedy):
    name, title = "evil.eval", "trains without dropout and batch statistics"
    def apply(self, seams):
        seams.at_model(lambda module: (module.eval(), seams.applied(self.name)))

class Impatient(Remedy):
    name, title = "evil.crash", "fails"
    def apply(self, seams):
        raise RuntimeError("out of patience")
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    return Program((sys.executable, "train.py"), source, 2e6)


@pytest.fixture
def referee(program: Program, tmp_path: Path) -> LiveReferee:
    return LiveReferee(program._replace(threads=1), tmp_path / "arms")


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody else's with three remedies, found through its entry points."""
    installed(tmp_path, monkeypatch, "evil", EVIL, doubled="DoubledGradients", eval="EvalMode", crash="Impatient")


@pytest.mark.slow
def test_the_guard_passes_what_is_right_and_catches_what_is_not(referee: LiveReferee, evil: None) -> None:
    assert referee.guard(("malloc_thresholds",)).verdict == "exact"
    assert set(referee.guarding.seen) == {Watched(), Watched(("malloc_thresholds",))}  # equal bits need no other run
    assert referee.guard(("fused_optimizer",)).verdict in ("exact", "equivalent")
    lowered = referee.guard(("bf16_autocast",))
    assert lowered.verdict == "bounded", lowered
    doubled = referee.guard(("evil.doubled",))
    assert doubled.verdict == "wrong", doubled
    trained_in_eval = referee.guard(("evil.eval",))
    assert trained_in_eval.verdict == "wrong" and any("eval() mode" in r for r in trained_in_eval.reasons)
    together = referee.guard(("bf16_autocast", "evil.doubled"))
    assert together.verdict == "wrong", together
    crashed = referee.guard(("evil.crash",))
    assert crashed.verdict == "unverified" and "out of patience" in crashed.reasons[0]


WATCHED_MEANWHILE = [
    (1 << 28, (), {Watched()}), (1 << 28, ("packed_masks",), {Watched(without_dropout=True)}), (1 << 45, (), set()),
    (0, (), set()), (1 << 28, REPLAYED, {Watched()}),
]  # fmt: skip
"""Bytes that the program holds, a stack of the race, and what is watched while its arms start."""


@pytest.mark.parametrize(("known", "stack", "seen"), WATCHED_MEANWHILE)
def test_the_guard_watches_what_the_first_contender_is_held_against_where_there_is_memory(
    program: Program, tmp_path: Path, known: int, stack: Stack, seen: set[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    referee = LiveReferee(program._replace(threads=1, bytes=known), tmp_path / "arms")
    asked: list[Watched] = []
    monkeypatch.setattr(referee.guarding, "_watched", asked.append)
    monkeypatch.setattr(referee.field, "start", lambda stacks, seconds, kill, ahead: ahead() if ahead else {})
    referee.start([(), stack], 120)
    assert set(asked) == seen


@pytest.mark.parametrize(("known", "stack", "seen"), [
    *WATCHED_MEANWHILE[:1], *(pytest.param(*case, marks=pytest.mark.slow) for case in WATCHED_MEANWHILE[1:]),
])  # fmt: skip
def test_while_the_first_arms_start_the_guard_watches_the_program_where_there_is_memory(
    program: Program, tmp_path: Path, known: int, stack: Stack, seen: set[Watched]
) -> None:
    referee = LiveReferee(program._replace(threads=1, bytes=known), tmp_path / "arms")
    try:
        assert () not in referee.start([(), stack], 120) and set(referee.guarding.seen) == seen
        assert not any(isinstance(found, ArmError) for found in referee.guarding.seen.values())
        assert referee.block((), 1).ns > 0
    finally:
        referee.close()


def test_a_line_where_any_arm_left_something_alone_is_not_one_that_a_remedy_took(referee: LiveReferee) -> None:
    first, second = (referee.arm(Path(name), ("loader_workers",)) for name in "ab")
    assert referee.taken() == {}
    first.places = {"loader_workers": {"train.py:3": True, "train.py:9": True}, "pin_memory": {"train.py:9": True}}
    second.places = {"loader_workers": {"train.py:3": True, "train.py:9": False, "train.py:12": True}}
    assert referee.taken() == {"loader_workers": ("train.py:12", "train.py:3"), "pin_memory": ("train.py:9",)}


def test_what_was_never_applied_is_unverified(referee: LiveReferee) -> None:
    found = referee.guard(("sdpa_attention",))
    assert found.verdict == "unverified" and "never took hold" in found.reasons[0]


def test_an_interruption_ends_the_arms_that_are_watched(referee: LiveReferee, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms have sessions of their own, so Ctrl-C does not reach them: whoever waits for one would wait for minutes."""
    began, ended = threading.Event(), threading.Event()

    class Running:
        peak_bytes = 0

        def kill(self) -> None:
            ended.set()

    def watched(wanted: Watched) -> object:
        if wanted.stack:
            began.wait(20)
            raise KeyboardInterrupt
        referee._all.append(Running())
        began.set()
        assert ended.wait(20), "it was not ended"
        raise ArmError("gone")

    monkeypatch.setattr(referee.guarding, "_watched", watched)
    monkeypatch.setattr(referee, "at_once", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        referee.guarding.together([Watched(("bf16_autocast",)), Watched()])
    assert ended.is_set()
    with pytest.raises(ArmError, match=SPENT):
        referee.arm(Path("arm"), ())


def test_no_timer_outlives_an_interrupted_look_ahead(referee: LiveReferee, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Watched) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(referee.guarding, "_watched", interrupted)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        referee.guarding.ahead(600)
    for _ in range(100):
        if threading.active_count() == before:
            break
        time.sleep(0.02)
    assert threading.active_count() == before


def test_a_verdict_for_which_runs_were_cut_is_none(referee: LiveReferee, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds that would have spoken for it may be among them."""
    monkeypatch.setattr(referee.guarding, "judged", lambda *_: Guarded("changed"))
    assert referee.guard(("bf16_autocast",)).verdict == "changed"
    monkeypatch.setattr(referee, "_until", 0.0)
    assert referee.guard(("bf16_autocast",)) == Guarded(reasons=(SPENT,))
    monkeypatch.setattr(referee.guarding, "judged", lambda *_: Guarded("exact"))
    assert referee.guard(("bf16_autocast",)).green
