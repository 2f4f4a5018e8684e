"""However watching ends, nothing of it is left in the process, and the program's results are the plain ones.

All in one process: a small training is run plain once, then under watch with something going wrong in every part of
gobrrr.capture in turn.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, Dataset

from gobrrr.capture import bootstrap, plan, recorder
from gobrrr.capture.session import Session
from gobrrr.capture.unseen import _CHATTER
from gobrrr.recording.journal import read_journal
from gobrrr.recording.run import load_run
from tests.transparency.pairs import differences, quick
from tests.transparency.programs import seen


class Noisy(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(6) + random.random() + np.random.rand(), index % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def train(epochs: int = 9, meanwhile: Callable[[int], object] = lambda step: None) -> dict[str, Any]:
    """Four steps per epoch, and an evaluation; hooks of the user's own stand behind gobrrr's in torch's tables."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    calls: list[str] = []
    mine = [
        register_optimizer_step_pre_hook(lambda *_: calls.append("before")),
        register_optimizer_step_post_hook(lambda *_: calls.append("after")),
    ]
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(Noisy(), batch_size=6, shuffle=True)
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            meanwhile(len(losses))
        with torch.no_grad():
            losses.append(model(torch.ones(2, 6)).sum().item())
    for handle in mine:
        handle.remove()
    gc.collect()
    return {
        "losses": losses,
        "calls": calls,
        "model": seen.of_model(model),
        "optimizer": seen.of_optimizer(optimizer),
        "random": seen.randomness(),
    }


def surroundings() -> dict[str, Any]:
    """All that a watcher could have left in this process."""
    found = {"seams": seen.seams(), "instruments": seen.instruments(), "flags": seen.torch_flags()}
    process = seen.process()
    del process["modules"]  # what this test imports itself
    return {**found, "process": process, "fds": len(list(Path("/proc/self/fd").iterdir()))}


@pytest.fixture(scope="module")
def plain() -> Iterator[dict[str, Any]]:
    """The results of a run that nobody watches; the second one, for imports and caches are then as they stay."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the nets are tiny, and the machine may be busy
    train()
    yield train()
    torch.set_num_threads(threads)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows open after four steps, and events are written at once, whatever the clock says."""
    monkeypatch.setattr(plan, "is_steady", lambda walls, min_time=0: len(walls) >= 4)
    monkeypatch.setattr(recorder, "VITALS_NS", 0)
    monkeypatch.setattr(recorder, "FLUSH_NS", 0)


@contextlib.contextmanager
def watched(folder: Path, **changes: Any) -> Iterator[Session | None]:
    """As gobrrr.watch(), with a Config that hurries."""
    folder.mkdir(exist_ok=True)
    session = bootstrap.watch(quick(folder, steps=3, sample_ns=1, **changes))
    try:
        yield session
    finally:
        if session is not None:
            session.end("block ended")
        bootstrap.session = None


def notes(folder: Path) -> str:
    """Everything that the recording says went wrong."""
    records = [record for path in folder.glob("*.journal") for record in read_journal(path).records]
    telling = [r for r in records if r.get("type") in ("failed", "note") or r.get("errors") or r.get("error")]
    return json.dumps(telling)


@pytest.mark.usefixtures("hurried")
def test_a_watched_training_is_the_plain_one_and_nothing_stays(plain: dict[str, Any], tmp_path: Path) -> None:
    before = surroundings()
    with watched(tmp_path):
        assert differences(plain, train()) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert [w.kind for w in recording.windows[:3]] == ["profile", "sample", "count"]
    assert recording.ended == "block ended"


class Injected(Exception):
    """Raised inside gobrrr by these tests."""


# (where it goes wrong, after how many calls). The guards themselves are not among them, nor what only takes things off.
FAULTS = [
    ("recorder.Recorder.note", 0), ("recorder.Recorder.note", 30), ("recorder.Recorder.update_end", 0),
    ("recorder.Recorder.update_end", 9), ("recorder.Recorder.forward", 3), ("recorder.Recorder.batch", 2),
    ("recorder.Recorder._boundary", 5), ("recorder.Recorder._boundary", 12), ("recorder.Recorder.flush", 0),
    ("recorder.Recorder._vitals", 0), ("recorder.vitals", 0), ("recorder.Registry.number", 4),
    ("recorder.Registry.alive", 0), ("collector.Collections.drain", 1), ("collector.Collections.install", 0),
    ("loops.Loops.update", 3), ("loops.Loops.forward", 7), ("loops.Loops.batch", 5),
    ("session.Session._boundary", 8), ("session.Session._step", 8), ("session.Session._plain", 3),
    ("session.Session._may_open", 0), ("session.Session._open", 0), ("session.Session._open", 1),
    ("session.Session._open", 2), ("session.Session._in_window", 0), ("session.Session._in_window", 1),
    ("session.Session._close", 0), ("session.Session._close", 1), ("session.Session._close", 2),
    ("session.Session._settle", 0), ("session.Session._write_facts", 0), ("session.Session._start", 0),
    ("session.Session._open_journal", 0), ("session.Session.user_sources", 0), ("session.Session.growth", 0),
    ("session.held_graphs", 0), ("session.user_line", 0),
    ("window.Window.open", 0), ("window.Window.open", 2), ("window.Window.close", 0), ("window.Window.close", 1),
    ("window.Window.close", 2), ("window.Window.exhausted", 0), ("window.Window._write", 0),
    ("window.Window._open_profile", 0), ("window.Window._close_profile", 0), ("window.Window._open_sample", 0),
    ("window.Window._close_sample", 0), ("window.Window._open_count", 0), ("window.Window._close_count", 0),
    ("window.Window._hook", 0), ("window.vitals", 0),
    ("profiled.Profiled.start", 0), ("profiled.Profiled.stop", 0), ("profiled.without_chatter", 0),
    ("profiled.without_chatter", 1),
    ("linelog.LineLog.start", 0), ("linelog.LineLog._enter_frames", 0), ("linelog.LineLog._kind", 50),
    ("linelog.LineLog._number", 20), ("linelog.LineLog._enter", 30), ("linelog.LineLog._enter_module", 5),
    ("linelog.LineLog._module_number", 3), ("linelog.LineLog.as_json", 0),
    ("sampler.Sampler.start", 0), ("sampler.Sampler._sample", 0), ("sampler.Sampler.as_json", 0),
    ("counted.Counted._count_saved", 0), ("counted.Counted._root", 0), ("counted.Counted.denormal", 0),
    ("counted.Counted.denormal", 9), ("counted.user_line", 0), ("counted.describe", 0),
    ("facts.settings", 0), ("facts.modules", 0), ("facts.optimizers", 0), ("facts.loaders", 0), ("facts.memory", 0),
    ("facts.compiled", 0), ("facts.orphans", 0), ("facts._flushes_denormals", 0),
    ("loaderfacts.loader_facts", 0), ("loaderfacts._in_memory", 0),
    ("journal.JournalWriter.__init__", 0), ("journal.JournalWriter.json", 0), ("journal.JournalWriter.json", 2),
    ("journal.JournalWriter.events", 0), ("journal.JournalWriter.events", 2), ("journal.JournalWriter._frame", 1),
    ("overhead.costs", 0), ("plan.is_steady", 3), ("plan.sample_steps", 0), ("workers.WorkerSampling.switch", 0),
    ("hooks.Hooks._optimizers", 0), ("hooks.Hooks._annotations", 0), ("hooks.Hooks._modules", 0),
    ("hooks.Hooks._loaders", 0), ("hooks.Hooks._profilers", 0), ("hooks.Hooks._next_begin", 3),
    ("hooks.Hooks._next_end", 3), ("hooks.Hooks._forward", 3), ("hooks.Hooks._update_begin", 3),
    ("hooks.Hooks._update_end", 3), ("hooks.Hooks._loader_number", 3), ("hooks.Hooks.cost", 0),
    ("session.Session.__init__", 0), ("session.hide_own_code", 0), ("source.call_line", 0),
]  # fmt: skip


def break_(monkeypatch: pytest.MonkeyPatch, where: str, after: int, error: BaseException) -> list[int]:
    """Let a function of gobrrr.capture raise from its call number `after` on; the list counts its calls."""
    module, *path = where.split(".")
    owner: Any = importlib.import_module(f"gobrrr.capture.{module}")
    for name in path[:-1]:
        owner = getattr(owner, name)
    real, calls = getattr(owner, path[-1]), []

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, path[-1], broken)
    return calls


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("where", "after"), FAULTS, ids=[f"{where}-{after}" for where, after in FAULTS])
def test_a_failure_inside_is_not_felt(
    where: str, after: int, plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    before = surroundings()
    with monkeypatch.context() as patches:
        calls = break_(patches, where, after, Injected("injected"))
        with watched(tmp_path):
            found = train()
    assert len(calls) > after, "never got there: the test shows nothing"
    assert differences(plain, found) == []
    assert differences(before, surroundings()) == []
    out, err = capfd.readouterr()
    err = _CHATTER.sub(b"", err.encode()).decode()  # should the part that holds it back be what fails
    assert out == ""
    assert err in ("", "gobrrr: cannot watch this process: Injected: injected\n")
    told = "Injected" in notes(tmp_path) or err
    assert told or not any(tmp_path.glob("*.journal")) or "journal" in where


@pytest.mark.usefixtures("hurried")
def test_a_full_disk_is_not_felt(plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = surroundings()
    real, written = os.write, []

    def write(fd: int, data: Any) -> int:
        written.append(len(data))
        if len(written) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patches:
        patches.setattr(os, "write", write)
        with watched(tmp_path):
            found = train()
    assert differences(plain, found) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert any("No space left" in text for text in recording.missing)
