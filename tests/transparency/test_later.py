"""Looks that were asked for later change nothing either; they begin where they were asked for, and with each signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gobrrr.capture.session import pause
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.run_folder.run import Recording, load_run
from tests.transparency.pairs import differences
from tests.transparency.training import break_, notes, surroundings, train, watched

STEPS = 4
"""Of an epoch of train()."""


@pytest.fixture
def restful(hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of a few steps, and a signal is heard in every step of a rest."""
    monkeypatch.setattr(pause, "STRETCH", 5)
    monkeypatch.setattr(pause, "MIN_REST", 6)
    monkeypatch.setattr(pause, "LONG_STEP", 1 << 62)
    monkeypatch.setattr(pause, "TELL_NS", 0)


@pytest.fixture
def usr2() -> Iterator[int]:
    """The signal, whose handler is put back."""
    before = signal.getsignal(signal.SIGUSR2)
    yield int(signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)


def looks(recording: Recording) -> list[int]:
    """Steps that the program had made, the first among them, when looks that were asked for began."""
    events = recording.events
    asked = events[(events[:, 1] == ev.ASIDE) & (events[:, 3] == 1), 0]
    ends = np.sort(events[(events[:, 1] == ev.BOUNDARY) & (events[:, 3] == 1), 0])
    return np.searchsorted(ends, asked, "right").tolist()


def windows_before(recording: Recording, moment: int) -> list[str]:
    return [window.kind for window in recording.windows if window.began < moment]


@pytest.mark.parametrize("most", [pause.MOST_BEFORE, 2])
@pytest.mark.usefixtures("restful")
def test_a_look_waits_for_its_step_and_hooks_rest_until_then(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause, "MOST_BEFORE", most)
    plain, before = train(30), surroundings()
    with watched(tmp_path, from_step=80):
        assert differences(plain, train(30)) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert looks(recording) == [80]
    assert windows_before(recording, recording.look) == []
    assert {window.kind for window in recording.windows} == {"profile", "count", "flow", "sample"}
    main = recording.main
    assert main is not None and len(main.steps) == STEPS * 30 - 1
    early = [step for step in main.resting if step.end < recording.look]
    assert len(early) > 20
    begun = recording.events[(recording.events[:, 1] == ev.REST_BEGIN) & (recording.events[:, 0] < recording.look)]
    assert len(begun) > 3 if most > 2 else len(begun) == most + 1, "the last one lasts until then"


@pytest.mark.usefixtures("restful")
def test_each_signal_asks_for_a_look_of_its_own(tmp_path: Path, usr2: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.capture.session.session.TAIL_NS", -1)  # the second comes an hour after the first

    def ask(step: int) -> None:
        if step in (40, 42, 120):  # the second comes while the first is answered
            signal.raise_signal(usr2)

    plain = train(50)
    with watched(tmp_path, on_signal=usr2):
        assert differences(plain, train(50, ask)) == []
    (recording,) = load_run(tmp_path)
    begun = looks(recording)
    assert len(begun) == 2 and 40 < begun[0] < 60 and 120 < begun[1] < 140
    assert [w.kind for w in recording.complete("profile")] == ["profile"] * 2
    assert recording.earlier is not None and recording.earlier[0].began < recording.look
    assert recording.trace is not None and windows_before(recording, recording.look)
    assert not recording.missing


@pytest.mark.usefixtures("restful")
def test_a_signal_for_which_no_budget_is_left_is_told(tmp_path: Path, usr2: int) -> None:
    def ask(step: int) -> None:
        if step in (30, 80):
            signal.raise_signal(usr2)

    with watched(tmp_path, on_signal=usr2, budget_ns=1):
        train(40, ask)
    (recording,) = load_run(tmp_path)
    assert len(looks(recording)) == 1
    assert "budget of all looks is spent" in notes(tmp_path)


@pytest.mark.usefixtures("restful")
def test_a_program_that_makes_fewer_steps_is_told_so(tmp_path: Path) -> None:
    with watched(tmp_path, from_step=1000):
        train(10)
    (recording,) = load_run(tmp_path)
    assert not recording.windows
    assert "the program made 40 steps, fewer than --from-step 1,000" in recording.missing[0]


@pytest.mark.parametrize("at", range(58, 66))
@pytest.mark.usefixtures("restful")
def test_steps_until_the_end_are_counted_from_the_look(at: int, tmp_path: Path) -> None:
    with pytest.raises(SystemExit), watched(tmp_path, from_step=at, stop_after=25):
        train(30)
    (recording,) = load_run(tmp_path)
    assert looks(recording) == [at]
    assert recording.main is not None and len(recording.main.steps) + 1 == at + 25


@pytest.mark.usefixtures("restful")
def test_a_handler_of_the_programs_own_stays_and_is_told(tmp_path: Path, usr2: int) -> None:
    heard: list[int] = []
    signal.signal(usr2, lambda number, frame: heard.append(number))
    for when in ("before", "meanwhile"):
        with watched(tmp_path / when, on_signal=usr2):
            if when == "meanwhile":
                signal.signal(usr2, lambda number, frame: heard.append(number))
            train(10, lambda step: signal.raise_signal(usr2) if step == 20 else None)
        assert "asks for no look" in notes(tmp_path / when)
        [why] = [text for text in load_run(tmp_path / when)[0].missing if "no profiled window" in text]
        assert "asks for no look" in why and "no signal came" not in why
        assert not list((tmp_path / when).glob("*.listens"))
        signal.signal(usr2, signal.SIG_DFL)
    assert heard == [usr2] * 2


@pytest.mark.usefixtures("restful")
@pytest.mark.parametrize(("where", "after"), [
    ("later.Later.due", 0), ("later.Later.left", 1), ("later.Later.news", 2), ("session.Session._look", 0),
    ("session.Session._aside", 0), ("session.Session._aside", 1),
])  # fmt: skip
def test_a_failure_before_a_look_is_not_felt(
    where: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, before = train(20), surroundings()
    with monkeypatch.context() as patches:
        calls = break_(patches, where, after, ArithmeticError("injected"))
        with watched(tmp_path, from_step=40):
            assert differences(plain, train(20)) == []
    assert len(calls) > after, "never got there: the test shows nothing"
    assert differences(before, surroundings()) == []
    assert "injected" in notes(tmp_path)
