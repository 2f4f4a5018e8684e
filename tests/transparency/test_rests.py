"""Rests of the hooks change nothing either, see what they must, and leave nothing when something goes wrong in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gobrrr
from gobrrr.capture.session import pause
from gobrrr.ledger.steps.step_stats import step_stats
from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.journal import read_journal
from gobrrr.recording.run_folder.run import Recording, load_run
from tests.transparency.pairs import differences
from tests.transparency.training import break_, notes, surroundings, train, watched


class Injected(Exception):
    """Raised inside gobrrr by these tests."""


@pytest.fixture
def restful(hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of a few steps, no window."""
    monkeypatch.setattr(pause, "STRETCH", 5)
    monkeypatch.setattr(pause, "MIN_REST", 6)
    monkeypatch.setattr(pause, "LONG_STEP", 1 << 62)
    monkeypatch.setattr("gobrrr.capture.session.session.ORDER", ())
    monkeypatch.setattr(pause.Pacing, "earliest", lambda self: 8)


def resting(folder: Path) -> Recording:
    """The recording, in which there were rests."""
    (recording,) = load_run(folder)
    assert np.count_nonzero(recording.events[:, 1] == event_kinds.REST_BEGIN) > 3
    assert not [text for text in recording.missing if "no profiled window" not in text]
    return recording


@pytest.mark.usefixtures("restful")
def test_rests_change_nothing_and_leave_nothing(tmp_path: Path) -> None:
    plain, before = train(20), surroundings()
    with watched(tmp_path):
        assert differences(plain, train(20)) == []
    assert differences(before, surroundings()) == []
    main = resting(tmp_path).main
    assert main is not None
    assert (main.kind, len(main.steps)) == (1, 4 * 20 - 1), "every step is counted, the first has no beginning"
    assert len(main.resting) > 20
    assert all(step.wall > 0 for step in main.steps)


@pytest.mark.usefixtures("restful")
def test_a_rest_that_tells_of_itself_changes_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause, "TELL_NS", 0)  # after every step
    plain, before = train(20), surroundings()
    with watched(tmp_path):
        assert differences(plain, train(20)) == []
    assert differences(before, surroundings()) == []
    main = resting(tmp_path).main
    assert main is not None and len(main.steps) == 4 * 20 - 1, "none is missing, and none told twice"
    assert len(main.resting) > 20 and all(step.wall > 0 for step in main.steps)


@pytest.mark.parametrize(("every", "told"), [(0, True), (1 << 60, False)])
@pytest.mark.usefixtures("restful")
def test_steps_of_a_rest_are_written_while_it_lasts(
    every: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause, "TELL_NS", every)
    with watched(tmp_path) as session:
        assert session is not None
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
        while session.rests._pulse is None:
            optimizer.step()
        before = num_steps(tmp_path)
        for _ in range(session.rests._planned - 1):
            optimizer.step()
        assert session.rests._pulse is not None
        assert (num_steps(tmp_path) > before) is told
        optimizer.step()
    assert num_steps(tmp_path) == before + session.rests._planned


def num_steps(folder: Path) -> int:
    """Ends of steps that stand in the journal."""
    (journal,) = folder.glob("rank*.journal")
    return int(np.count_nonzero(read_journal(journal).events[:, 1] == event_kinds.BOUNDARY))


@pytest.mark.usefixtures("restful")
def test_hooks_go_and_come_back_as_the_very_same(tmp_path: Path) -> None:
    from torch.autograd.profiler import record_function

    plain, seen = (vars(nn.Module)["__call__"], vars(record_function)["__enter__"]), []

    def look(_: int) -> None:
        mine = (vars(nn.Module)["__call__"], vars(record_function)["__enter__"])
        seen.append("rest" if mine == plain else "watch")

    with watched(tmp_path):
        train(12, look)
    assert {"rest", "watch"} == set(seen)
    assert (vars(nn.Module)["__call__"], vars(record_function)["__enter__"]) == plain


@pytest.mark.usefixtures("restful")
def test_epochs_that_begin_in_a_rest_are_counted_or_watched(tmp_path: Path) -> None:
    with watched(tmp_path):
        train(20)
    events = resting(tmp_path).events
    made = events[events[:, 1] == event_kinds.ITER]
    assert len(made) == 20
    assert set(made[:, 3]) == {0, 1}


@pytest.mark.usefixtures("restful")
def test_an_optimizer_that_was_not_there_ends_the_rest(tmp_path: Path) -> None:
    with watched(tmp_path) as session:
        assert session is not None
        one, other = (torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1) for _ in range(2))
        while session.rests._pulse is None:
            one.step()
        other.step()
        assert session.rests._pulse is None
    (recording,) = load_run(tmp_path)
    updates = recording.events[recording.events[:, 1] == event_kinds.UPDATE_END]
    assert updates[-1, 2] != updates[0, 2]


@pytest.mark.parametrize(("earned", "rests"), [(0, False), (1 << 20, True)])
@pytest.mark.usefixtures("restful")
def test_a_gap_ends_a_rest_where_the_next_stretch_is_earned(
    earned: int, rests: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause.Pacing, "earliest", lambda self: earned)
    monkeypatch.setattr("gobrrr.capture.session.pause.GAP_NS", -(1 << 60))  # every step is one
    with watched(tmp_path) as session:
        assert session is not None
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
        while session.rests._pulse is None:
            optimizer.step()
        for _ in range(session.rests._planned - 1):
            optimizer.step()
            if session.rests._pulse is None:
                break
        assert (session.rests._pulse is not None) is rests
        if rests:
            optimizer.step()
            assert session.rests._pulse is None, "as long as it was to be"


@pytest.mark.usefixtures("restful")
def test_two_optimizers_of_one_step_rest_together(tmp_path: Path) -> None:
    with watched(tmp_path):
        pair = [torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1) for _ in range(2)]
        for _ in range(60):
            for optimizer in pair:
                optimizer.step()
    (loop,) = resting(tmp_path).loops
    assert len(loop.steps) == 59
    assert len(loop.resting) > 20


@pytest.mark.usefixtures("restful")
def test_folds_are_one_loop_whose_rests_follow_its_optimizers(tmp_path: Path) -> None:
    with watched(tmp_path):
        for fold in range(4):
            optimizer = torch.optim.SGD(nn.Linear(2, 2 + fold // 2).parameters(), lr=0.1)
            for _ in range(50):
                optimizer.step()
    (loop,) = resting(tmp_path).loops
    assert len(loop.steps) == 4 * 50 - 1
    assert len(loop.resting) > 60
    assert {step.sizes for step in loop.steps} == {0, 1}


@pytest.mark.usefixtures("restful")
def test_explicit_steps_rest_and_are_counted(tmp_path: Path) -> None:
    with watched(tmp_path):
        for _ in gobrrr.steps(range(60)):
            torch.ones(2).sum()
    (loop,) = resting(tmp_path).loops
    assert (loop.kind, len(loop.steps)) == (3, 59)
    assert len(loop.resting) > 20


@pytest.mark.usefixtures("restful")
def test_a_program_that_ends_in_a_rest_has_all_its_steps(tmp_path: Path) -> None:
    with watched(tmp_path) as session:
        assert session is not None
        optimizer, num = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), 0
        while session.rests._pulse is None or len(session.rests._pulse.times) < 2:
            optimizer.step()
            num += 1
    (recording,) = load_run(tmp_path)
    assert recording.main is not None
    assert len(recording.main.steps) == num - 1


@pytest.mark.usefixtures("restful")
def test_what_watching_cost_is_measured(tmp_path: Path) -> None:
    with watched(tmp_path):
        train(80)
    stats = step_stats(resting(tmp_path))
    assert stats.overhead_low is not None and stats.overhead_high is not None
    assert stats.overhead_low <= stats.overhead_share <= stats.overhead_high


FAULTS = [
    ("pause.Rests.step", 4), ("pause.Rests._begin", 0), ("pause.Rests._begin", 1), ("pause.Rests._due", 0),
    ("pause.Rests._due", 1), ("pause.Rests._due", 2), ("pause.Rests._reading", 0), ("pause.Rests._reading", 2),
    ("pause.Rests._reading", 4), ("pause.Rests._cost", 0), ("pause.Rests._iterator", 0),
    ("pause.Rests._iterator", 2), ("pause.Pulse.__init__", 0), ("pause.Pulse.beat", 1),
    ("pause.Pacing.watched", 3), ("pause.Pacing.rested", 0), ("recorder.Recorder.rests", 0),
    ("recorder.Recorder.rested", 0), ("recorder.Recorder.spent", 3), ("session.Session._rested", 0),
    ("hooks.Hooks.rest", 0), ("hooks.Hooks.wake", 0), ("hooks.Hooks._fetchers", 0), ("hooks.Hooks._fetchers", 1),
    ("lookup.Seat.becomes", 0), ("lookup.Seat.becomes", 1), ("lookup.Seat.becomes", 2),
]  # fmt: skip


@pytest.mark.usefixtures("restful")
@pytest.mark.parametrize(("where", "after"), FAULTS, ids=[f"{where}-{after}" for where, after in FAULTS])
def test_a_failure_in_a_rest_is_not_felt(
    where: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    plain, before = train(20), surroundings()
    with monkeypatch.context() as patches:
        calls = break_(patches, where, after, Injected("injected"))
        with watched(tmp_path):
            assert differences(plain, train(20)) == []
    assert len(calls) > after, "never got there: the test shows nothing"
    assert differences(before, surroundings()) == []
    assert capfd.readouterr() == ("", "")
    assert "Injected" in notes(tmp_path)


@pytest.mark.usefixtures("hurried")
def test_epochs_of_workers_that_stay_are_noted(tmp_path: Path) -> None:
    """Their iterator is made once and begins anew for each epoch."""
    rows = TensorDataset(torch.zeros(6, 2))
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(tmp_path):
        loader = DataLoader(rows, batch_size=2, num_workers=1, persistent_workers=True)
        for _ in range(4):
            for (x,) in loader:
                model(x).sum().backward()
                optimizer.step()
    (recording,) = load_run(tmp_path)
    assert np.count_nonzero(recording.events[:, 1] == event_kinds.ITER) == 4
