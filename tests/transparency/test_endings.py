"""Watching ends with its block, with an exception, with Ctrl-C, in a fork: what the program had set up itself stays."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

import gobrrr
from gobrrr.capture.process import bootstrap
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.windows import dataflow, line_log
from gobrrr.capture.windows import window as window_module
from gobrrr.capture.windows.profiling import ProfileWindow
from gobrrr.capture.windows.window import Window
from gobrrr.errors import GobrrrError
from gobrrr.integrations import watch as api
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.event_kinds import UPDATES
from gobrrr.recording.run_folder.run import load_run
from tests.transparency.pairs import differences, quick
from tests.transparency.training import break_, notes, surroundings, train, watched

pytestmark = pytest.mark.usefixtures("hurried")


@pytest.fixture(autouse=True)
def quick_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """gobrrr.watch() with windows of three steps."""
    monkeypatch.setattr(api, "Config", lambda folder: quick(Path(folder), steps=3, sample_ns=1))


def test_a_block_that_ends_leaves_nothing(plain: dict[str, Any], tmp_path: Path) -> None:
    before = surroundings()
    with gobrrr.watch(tmp_path, show=False):
        assert differences(plain, train()) == []
    assert differences(before, surroundings()) == []


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("step", [2, 6, 10, 13])
def test_a_block_that_raises_leaves_nothing(step: int, error: BaseException, tmp_path: Path) -> None:
    def stop(number: int) -> None:
        if number == step:
            raise error

    before = surroundings()
    with pytest.raises(type(error)) as caught, gobrrr.watch(tmp_path, show=False):
        train(meanwhile=stop)
    assert caught.value is error
    after = surroundings()
    after["seams"]["optimizer"] = before["seams"]["optimizer"]  # the training's own two hooks, cut short
    assert differences(before, after) == []
    _forget_the_trainings_hooks()
    (recording,) = load_run(tmp_path)
    assert recording.ended == "block ended"


def _forget_the_trainings_hooks() -> None:
    from torch.optim import optimizer

    optimizer._global_optimizer_pre_hooks.clear()
    optimizer._global_optimizer_post_hooks.clear()


def test_steps_that_are_broken_off_leave_nothing(tmp_path: Path) -> None:
    before = surroundings()
    with gobrrr.watch(tmp_path, show=False):
        for number in gobrrr.steps(range(20)):
            if number == 8:
                break
        generator = gobrrr.steps(range(3))
        next(generator)
        generator.close()
    assert differences(before, surroundings()) == []


def test_a_block_in_a_block_says_so(tmp_path: Path) -> None:
    with gobrrr.watch(tmp_path / "a", show=False):
        with pytest.raises(GobrrrError, match=r"inside gobrrr\.watch"), gobrrr.watch(tmp_path / "b", show=False):
            pass
    assert not (tmp_path / "b").exists()
    with pytest.raises(GobrrrError, match="holds a recording"):
        with gobrrr.watch(tmp_path / "a", show=False):
            train(2)
        with gobrrr.watch(tmp_path / "a", show=False):
            pass


def test_blocks_leak_nothing(tmp_path: Path) -> None:
    def block(number: int) -> None:
        with watched(tmp_path / str(number)):
            train(4)

    block(0)
    gc.collect()
    before, objects = surroundings(), _ours()
    for number in range(1, 6):
        block(number)
    gc.collect()
    assert differences(before, surroundings()) == []
    assert _ours() == objects


def _ours() -> dict[str, int]:
    """How many objects of gobrrr.capture's classes live."""
    found: dict[str, int] = {}
    for thing in gc.get_objects():
        if str(type(thing).__module__).startswith("gobrrr.capture"):
            found[type(thing).__name__] = found.get(type(thing).__name__, 0) + 1
    return found


# interrupts


@pytest.mark.parametrize(
    "where", ["recorder.Recorder.note", "session.Session._open", "window.Window._write", "line_log.LineLog._number"]
)
def test_an_interrupt_in_our_code_reaches_the_program(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = surroundings()
    with monkeypatch.context() as patches:
        break_(patches, where, 0, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt), watched(tmp_path):
            train()
    _forget_the_trainings_hooks()
    assert differences(before, surroundings()) == []


class Timeout(Exception):
    """What a program's own signal handler raises."""


def _ring(number: int, frame: types.FrameType | None) -> None:
    raise Timeout


@pytest.fixture
def alarmed() -> Iterator[None]:
    """A program that bounds its time by an alarm."""
    old = signal.signal(signal.SIGALRM, _ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


@pytest.mark.usefixtures("alarmed")
def test_what_a_signal_handler_raises_in_our_code_reaches_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Recorder.update_end

    def rung(self: Recorder, number: int) -> None:
        real(self, number)
        signal.raise_signal(signal.SIGALRM)

    before = surroundings()
    with monkeypatch.context() as patches:
        patches.setattr(Recorder, "update_end", rung)
        with pytest.raises(Timeout), watched(tmp_path):
            train()
    _forget_the_trainings_hooks()
    assert differences(before, surroundings()) == []
    assert "Timeout came while gobrrr was at work" in notes(tmp_path)


@pytest.fixture
def alone_in_gc() -> Iterator[None]:
    """No other listener to collections (hypothesis has one): an alarm that fires in theirs is lost there."""
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others


@pytest.mark.usefixtures("alarmed")
def test_an_alarm_during_garbage_collection_is_not_lost(tmp_path: Path, capfd: Any, alone_in_gc: None) -> None:
    heap: list[Any] = [[i] for i in range(1_500_000)]  # a fifth of a second to collect
    with pytest.raises(Timeout), watched(tmp_path):
        train(1)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        gc.collect()
        for _ in range(1000):
            pass
    _forget_the_trainings_hooks()
    assert len(heap) == 1_500_000
    assert capfd.readouterr().err == ""


# threads


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Another thread has done this, and lives on."""
    done, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (work(), done.set(), over.wait()))
    thread.start()
    try:
        assert done.wait(60)
        yield
    finally:
        over.set()
        thread.join()


def forwards() -> None:
    model = torch.nn.Linear(4, 4)
    with torch.no_grad():
        for _ in range(200):
            model(torch.ones(1, 4))


def reads() -> None:
    for _ in torch.utils.data.DataLoader(torch.arange(8)):
        pass


@pytest.mark.parametrize("work", [reads, forwards])
def test_what_another_thread_does_before_is_not_the_training(
    work: Callable[[], None], plain: dict[str, Any], tmp_path: Path
) -> None:
    """It reads the first batches, in front of any step; or it acts while the learner waits for its first ones."""
    with watched(tmp_path), beside(work):
        assert differences(plain, train()) == []
    (recording,) = load_run(tmp_path)
    assert recording.main is not None
    assert (recording.main.kind, len(recording.main.steps)) == (UPDATES, 35)


@pytest.mark.parametrize(("warm_up", "work", "least"), [(1, forwards, 130), (0, forwards, 190), (1, train, 35)])
def test_a_program_that_works_in_a_thread_is_seen_there(
    warm_up: int, work: Callable[[], object], least: int, tmp_path: Path
) -> None:
    """Servers try their model once in the main thread."""
    with watched(tmp_path):
        for _ in range(warm_up):
            torch.nn.Linear(4, 4)(torch.ones(1, 4))
        with beside(work):
            pass
    (recording,) = load_run(tmp_path)
    assert recording.main is not None
    assert len(recording.main.steps) >= least


def test_who_trains_keeps_the_role_as_long_as_its_thread_lives(tmp_path: Path) -> None:
    with watched(tmp_path) as session, beside(train):
        assert session is not None
        thread = session.recorder.thread
        train()
        forwards()
        assert session.recorder.thread == thread != threading.get_ident()


def test_who_infers_keeps_the_role_from_a_thread_that_does_so_once(tmp_path: Path) -> None:
    with watched(tmp_path) as session:
        assert session is not None
        model = torch.nn.Linear(4, 4)
        for _ in range(8):
            model(torch.ones(1, 4))
        with beside(lambda: model(torch.ones(1, 4))):
            assert session.recorder.thread == threading.get_ident()


def test_a_thread_that_trains_does_not_take_the_role_while_a_window_is_open(tmp_path: Path) -> None:
    """Its instruments are on the other one."""
    with watched(tmp_path) as session:
        assert session is not None
        session.recorder.is_looked_at = True
        with beside(train):
            assert session.recorder.thread == threading.get_ident()
        session.recorder.is_looked_at = False


# a loop that goes on no more


@pytest.mark.parametrize("kind", ev.WINDOW_NAMES.values())
@pytest.mark.parametrize("body", [lambda value: value + 1, lambda value: [0] * 10], ids=["tensors", "python"])
def test_a_window_whose_loop_goes_on_no_more_is_closed(
    kind: str, body: Callable[[Any], object], plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulation behind the training, without modules, batches or backward passes: nothing tells of a step."""
    monkeypatch.setattr(Window, "late_ns", 0)
    monkeypatch.setattr(ProfileWindow, "late_ns", 0)
    monkeypatch.setattr(dataflow, "COMPRESSED", re.compile(rb"(?!)"))  # sparse tensors of other tests are alive
    closed: list[bool] = []

    def meanwhile(_: int) -> None:
        window = session._window if session is not None else None
        if window is None or ev.WINDOW_NAMES[window.kind] != kind or closed:
            return
        value, until = torch.zeros(8), time.monotonic() + 60
        while session._window is window and time.monotonic() < until:
            body(value)
        closed.append(session._window is None and sys.gettrace() is None)
        closed.append(not torch._C._autograd._profiler_enabled() and sys.getswitchinterval() == interval)

    before, interval = surroundings(), sys.getswitchinterval()
    with watched(tmp_path) as session:
        assert differences(plain, train(meanwhile=meanwhile)) == []
    assert closed == [True, True]
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert not [line for line in recording.missing if "failed inside gobrrr" in line]


def test_no_window_is_closed_inside_our_own_code(tmp_path: Path) -> None:
    """A call that the interpreter makes while a hook of ours runs waits for the next one."""
    with watched(tmp_path) as session:
        assert session is not None
        session._window = window = SimpleNamespace(steps=1)
        found = line_log.LineLog(session.user, {}, clock=lambda: window_module._bell.__bool__())
        window_module._bell.close = session.overdue
        found._enter_frames(sys._getframe())
        assert found.events and session._window is window
        session._window = window_module._bell.close = None


# what the program does to torch itself


def test_patches_that_the_program_lays_on_ours_stay(tmp_path: Path) -> None:
    before = surroundings()
    module, entered = torch.nn.Module, []
    own_call = module.__call__
    with watched(tmp_path):
        train(2)
        theirs = record_function.__enter__

        @functools.wraps(theirs)
        def enter(self: Any) -> Any:
            entered.append(self.name)
            return theirs(self)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return own_call(self, *args, **kwargs)

        record_function.__enter__ = enter
        module.__call__ = call
        train(2)
    assert record_function.__enter__ is enter
    assert module.__call__ is call
    count = len(entered)
    train(2)
    assert len(entered) > count
    record_function.__enter__ = theirs
    module.__call__ = own_call
    assert differences(before, surroundings()) == []


def test_a_tracer_set_meanwhile_stays(tmp_path: Path) -> None:
    def tracer(frame: types.FrameType, event: str, arg: Any) -> None:
        return None

    def meanwhile(step: int) -> None:
        if step == 6:
            assert sys.gettrace() is not None, "no window is open: the test shows nothing"
            sys.settrace(tracer)

    with watched(tmp_path):
        train(meanwhile=meanwhile)
        kept = sys.gettrace()
        sys.settrace(None)
    assert kept is tracer


def test_our_tracer_given_back_by_the_program_takes_itself_off(tmp_path: Path) -> None:
    saved: list[Any] = []

    def meanwhile(step: int) -> None:
        tracer = sys.gettrace()
        if isinstance(getattr(tracer, "__self__", None), line_log.LineLog):
            saved.append(tracer)

    with watched(tmp_path):
        train(meanwhile=meanwhile)
        assert saved, "the lines of no step were watched"
        sys.settrace(saved[0])
    train(1)
    assert sys.gettrace() is None


@pytest.mark.parametrize("step", [2, 6, 10, 13])
def test_the_programs_profiler_finds_torchs_profiler_free(plain: dict[str, Any], step: int, tmp_path: Path) -> None:
    seen: list[int] = []
    running: list[Any] = []

    def meanwhile(number: int) -> None:
        if number == step:
            running.append(profile(activities=[ProfilerActivity.CPU]))
            running[0].__enter__()
        if number == step + 2:
            running[0].__exit__(None, None, None)
            seen.append(sum("addmm" in event.name for event in running[0].events()))

    before = surroundings()
    with watched(tmp_path):
        found = train(meanwhile=meanwhile)
    assert differences(plain, found) == []
    assert seen[0] >= 4
    assert differences(before, surroundings()) == []


def test_the_programs_saved_tensor_hooks_are_all_called(plain: dict[str, Any], tmp_path: Path) -> None:
    """Around the whole loop."""
    packed: list[int] = []
    hooks = saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t)
    with hooks:
        train()
    expected, packed[:] = len(packed), []
    before = surroundings()
    with hooks, watched(tmp_path / "around"):
        assert differences(plain, train()) == []
    assert len(packed) == expected
    assert differences(before, surroundings()) == []


@pytest.mark.parametrize("step", range(9, 16))
def test_saved_tensor_hooks_that_come_in_any_window_are_the_only_ones(
    plain: dict[str, Any], step: int, tmp_path: Path
) -> None:
    stack = contextlib.ExitStack()

    def meanwhile(number: int) -> None:
        if number == step:
            stack.enter_context(saved_tensors_hooks(lambda t: t, lambda t: t))
        if number == step + 6:
            stack.close()

    before = surroundings()
    with watched(tmp_path):
        assert differences(plain, train(meanwhile=meanwhile)) == []
    assert differences(before, surroundings()) == []


# forks


@pytest.mark.parametrize("step", [2, 6, 10, 13])
def test_a_fork_in_any_phase_is_free_of_instruments(plain: dict[str, Any], step: int, tmp_path: Path) -> None:
    """The child trains as well: plain results, no instrument on, nothing written into its parent's recording."""
    told: list[int] = []

    def meanwhile(number: int) -> None:
        if number != step:
            return
        child = os.fork()
        if child == 0:
            code = 9
            try:
                watching: list[Any] = [
                    sys.gettrace(),
                    torch._C._autograd._profiler_enabled(),
                    threading.active_count() - 1,
                ]
                watching.append(torch._C._autograd._top_saved_tensors_default_hooks(True))
                same = differences(plain["losses"], train()["losses"]) == []
                code = (not same) * 2 + any(watching)
            finally:
                os._exit(code)
        told.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    before = surroundings()
    with watched(tmp_path):
        found = train(meanwhile=meanwhile)
    assert told == [0]
    assert differences(plain, found) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert [w.kind for w in recording.windows[:3]] == ["profile", "count", "flow"]
    assert {w.complete for w in recording.windows[:3]} == {True}
    assert len(recording.loops[0].steps) <= 36


def test_no_session_is_left_behind(tmp_path: Path) -> None:
    with gobrrr.watch(tmp_path, show=False):
        pass
    assert bootstrap.session is None
