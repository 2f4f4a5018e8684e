"""Which loop of a program gets windows, and when another one has to wait."""

from __future__ import annotations

import builtins
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gobrrr.capture.hooks.lookup import top_level
from gobrrr.capture.process.config import Config
from gobrrr.capture.session import session as module
from gobrrr.capture.session.session import ORDER, TRAINING_NS, Session
from gobrrr.capture.source.user_code import UserFiles
from gobrrr.capture.steps.loops import PATIENCE_TRAINING, Loop
from gobrrr.capture.windows import window as window_module
from gobrrr.capture.windows.counted import Counted
from gobrrr.capture.windows.counting import CountWindow
from gobrrr.capture.windows.line_log import LineLog
from gobrrr.capture.windows.profiling import ProfileWindow
from gobrrr.capture.windows.sampler import Sampler
from gobrrr.capture.windows.sampling import SampleWindow
from gobrrr.capture.windows.window import LATE_STEPS, LOOK, Window
from gobrrr.integrations import watch as api
from gobrrr.recording.model.event_kinds import BACKWARDS, FORWARDS, UPDATES

NOW = 100_000_000_000
INFERS, TRAINS = (FORWARDS, 0), (UPDATES, 0)


def loop(total: int, done: int = 0, last: int = NOW) -> Loop:
    found = Loop()
    found.total, found.done, found.last = total, done, last
    return found


def may_open(key: tuple[int, int], monkeypatch: pytest.MonkeyPatch, **loops: Loop) -> bool:
    monkeypatch.setattr(module, "is_tracing", lambda: False)
    monkeypatch.setattr(module, "is_profiled", lambda: False)
    session: Any = object.__new__(Session)
    session.loops = (
        {INFERS: loops["infers"], TRAINS: loops["trains"]} if "trains" in loops else {INFERS: loops["infers"]}
    )
    session._spent_ns, session.config = 0, SimpleNamespace(budget_ns=1 << 60)
    return session._may_open(key, session.loops[key], NOW)


def test_evaluation_waits_while_a_training_waits_for_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = 1_000_000_000, 5_000_000_000
    assert may_open(INFERS, monkeypatch, infers=loop(long)), "nothing trains"
    assert not may_open(INFERS, monkeypatch, infers=loop(long), trains=loop(short))
    assert may_open(TRAINS, monkeypatch, infers=loop(long, 3), trains=loop(short))
    assert may_open(INFERS, monkeypatch, infers=loop(long), trains=loop(short, len(ORDER)))
    ago = loop(short, last=NOW - TRAINING_NS - 1)
    assert may_open(INFERS, monkeypatch, infers=loop(long), trains=ago), "the training is over, or in a long evaluation"


def test_no_window_opens_or_closes_inside_a_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's profiler, started there, ends the program by SIGSEGV."""
    told: list[bool] = []
    session: Any = object.__new__(Session)
    session._window = SimpleNamespace(
        loop=TRAINS, steps=2, is_enough=lambda now: True, exhausted=lambda now: True, step_over=lambda: None
    )
    session._close = told.append

    def inside(_: torch.Tensor) -> None:
        told.append(may_open(TRAINS, monkeypatch, infers=loop(1), trains=loop(1)))
        session._in_window(TRAINS, loop(1), NOW)

    weight = torch.ones(1, requires_grad=True)
    weight.register_hook(inside)
    weight.sum().backward()
    assert told == [False]
    session._in_window(TRAINS, loop(1), NOW)
    assert told == [False, True]
    assert may_open(TRAINS, monkeypatch, infers=loop(1), trains=loop(1))


def test_an_overdue_window_is_closed_by_its_own_thread_outside_of_backward_passes() -> None:
    told: list[bool] = []
    session: Any = object.__new__(Session)
    session._window, session._close, session._busy = SimpleNamespace(steps=2), told.append, False
    session.recorder = SimpleNamespace(thread=threading.get_ident())
    weight = torch.ones(1, requires_grad=True)
    weight.register_hook(lambda _: session.overdue())
    weight.sum().backward()
    another = threading.Thread(target=session.overdue)
    another.start()
    another.join()
    assert told == []
    session.overdue()
    session._window.steps = 0
    session.overdue()
    assert told == [True, False], "whole, or nothing of it"


@pytest.mark.parametrize(("error", "passes"), [(KeyboardInterrupt(), True), (ValueError("ours"), False)])
def test_what_the_program_is_sent_while_an_overdue_window_is_closed_reaches_it(
    error: BaseException, passes: bool
) -> None:
    def fails(_: bool) -> None:
        raise error

    told: list[BaseException] = []
    session: Any = object.__new__(Session)
    session._window, session._close, session._failed, session._busy = (
        SimpleNamespace(steps=1),
        fails,
        told.append,
        False,
    )
    session.recorder = SimpleNamespace(thread=threading.get_ident())
    with pytest.raises(KeyboardInterrupt) if passes else contextlib.nullcontext():
        session.overdue()
    assert told == [error] and not session._busy


@pytest.mark.parametrize(
    ("key", "done", "closed"), [(TRAINS, 0, True), (TRAINS, len(ORDER), False), ((BACKWARDS, 1), 0, True)]
)
def test_a_training_step_ends_the_window_of_an_evaluation(
    key: tuple[int, int], done: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_tracing", lambda: False)
    monkeypatch.setattr(module, "is_traced", lambda: False)
    session: Any = object.__new__(Session)
    ends: list[bool] = []
    session.loops = {INFERS: loop(1), key: loop(1, done)}
    session._window = SimpleNamespace(loop=INFERS, steps=2, is_enough=lambda now: False, exhausted=lambda now: False)
    session._close = ends.append
    session._in_window(key, session.loops[key], NOW)
    assert bool(ends) == closed
    session._window = SimpleNamespace(loop=TRAINS, steps=2, is_enough=lambda now: False, exhausted=lambda now: False)
    ends.clear()
    session.loops[TRAINS] = loop(1)
    session._in_window(INFERS, session.loops[INFERS], NOW)
    assert not ends, "an evaluation ends nothing"


class Idle(Window):
    """Without instruments."""

    def start(self) -> bool:
        return True

    def off(self) -> None: ...


@pytest.fixture
def idle() -> Idle:
    """Of a loop whose steps take a second."""
    session: Any = SimpleNamespace(
        config=SimpleNamespace(budget_ns=0), overdue=lambda: None, recorder=SimpleNamespace(is_looked_at=False)
    )
    return Idle(session, TRAINS, 1e9)


def test_a_window_is_late_by_its_last_step_and_by_how_long_steps_take(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: NOW)
    idle.step_over()
    due = NOW + LATE_STEPS * 1_000_000_000 + Window.late_ns
    assert not idle.is_late(due) and idle.is_late(due + 1)


def test_a_late_window_is_closed_between_two_lines_of_the_program(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    late, told = [False], list[int]()
    monkeypatch.setattr(Idle, "is_late", lambda self, now: late[0])
    host: Any = idle.host
    host.overdue = lambda: told.append(threading.get_ident())
    window = Idle(host, TRAINS, 1e9)
    assert window.open()
    for late[0], end in ((False, time.monotonic() + 3 * LOOK), (True, time.monotonic() + 20)):
        while not told and time.monotonic() < end:
            pass
        assert bool(told) == late[0]
    window.release()
    assert set(told) == {threading.get_ident()}


def test_the_watched_thread_stays_the_same_while_a_window_is_open(idle: Idle) -> None:
    assert idle.open() and idle.host.recorder.is_looked_at
    idle.release()
    assert not idle.host.recorder.is_looked_at


def test_a_window_that_is_closed_leaves_neither_its_thread_nor_its_bell(idle: Idle) -> None:
    assert idle.open() and idle._overdue._thread.alive and window_module._bell.close is not None
    idle.release()
    assert not idle._overdue._thread.alive and window_module._bell.close is None


@pytest.mark.parametrize(
    ("kind", "instrument"),
    [(ProfileWindow, LineLog), (CountWindow, LineLog), (CountWindow, Counted), (SampleWindow, Sampler)],
)
def test_a_window_tells_what_failed_in_each_of_its_instruments(
    kind: type[Window], instrument: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[dict[str, Any]] = []
    recorder = SimpleNamespace(
        thread=threading.get_ident(), is_looked_at=False, updates_of=lambda _: 0,
        journal=SimpleNamespace(json=written.append), modules=SimpleNamespace(alive=list, number=id),
        optimizers=SimpleNamespace(alive=list),
    )  # fmt: skip
    host: Any = SimpleNamespace(
        config=SimpleNamespace(budget_ns=1 << 40, budget_bytes=1 << 40, sample_ns=1 << 20), user=UserFiles(),
        recorder=recorder, workers=SimpleNamespace(switch=lambda *_: None), trace_file=lambda: tmp_path / "t.json",
        overdue=lambda: None, look_for_tensors=lambda: None, growth=lambda frame: [],
    )  # fmt: skip
    begins = instrument.__init__

    def broken(self: Any, *args: Any, **kwargs: Any) -> None:
        begins(self, *args, **kwargs)
        self.error = "broken"

    whole, failed = kind(host, TRAINS, 1e6), kind(host, TRAINS, 1e6)
    assert whole.open()
    whole.close(True)
    monkeypatch.setattr(instrument, "__init__", broken)
    assert failed.open()
    failed.close(True)
    assert [note.get("error") for note in written if note["type"] == "window"] == [None, "broken"]


@pytest.mark.parametrize(("steps", "seconds", "enough"), [(1, 1, False), (8, 1, True), (1, 8, True)])
def test_a_window_ends_by_its_steps_or_by_time(steps: int, seconds: int, enough: bool) -> None:
    host: Any = SimpleNamespace(config=Config("", budget_ns=60_000_000_000), overdue=lambda: None)
    window = ProfileWindow(host, TRAINS, 1e6)
    window.steps = steps
    assert window.is_enough(seconds * 1_000_000_000) is enough


def test_every_profile_of_a_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    session: Any = object.__new__(Session)
    session.config, session.stem = SimpleNamespace(folder=str(tmp_path)), "rank0-7"
    session.loops, session._steps = {TRAINS: loop(1)}, 20
    files = [session.trace_file()]
    session._steps = 40
    files.append(session.trace_file())
    session.stem = "rank0-8"
    files.append(session.trace_file())
    assert len(set(files)) == 3 and all(file.parent == tmp_path for file in files)


@pytest.mark.parametrize("again", range(3))
def test_steps_that_end_before_anything_was_written_are_seen(again: int, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with api.watch(tmp_path / "run", show=False) as watched:
        for _ in range(10):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert watched.result.step.count == 9


class Captured:
    """What torch's CUDAGraph derives from, in a build with CUDA; this one runs on the CPU."""

    def __init__(self, body: Callable[[], object]) -> None:
        self.body = body

    def replay(self) -> None:
        self.body()


class Graph(Captured):
    def replay(self) -> None:
        super().replay()


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's class is that one, and in the end nothing of ours is left on it."""
    own = vars(Captured)["replay"]
    monkeypatch.setattr(torch._C, "_CUDAGraph", Captured, raising=False)
    yield
    assert vars(Captured)["replay"] is own and vars(Graph)["replay"] is Graph.replay


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("kept", [False, True])
def test_a_training_that_is_replayed_is_watched(kept: bool, tmp_path: Path) -> None:
    """Three updates, a graph of all that follow, and windows over it; its method may be looked up once."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    graph = Graph(lambda: time.sleep(0.001))
    with api.watch(tmp_path / "run", show=False) as watched:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        replay = graph.replay
        for _ in range(400):
            replay() if kept else graph.replay()
    step = watched.result.step
    assert (step.kind, step.loop, step.count) == ("replayed", "6:0", 400 - PATIENCE_TRAINING - 1)
    assert step.profiled_count
    assert [loop.name for loop in watched.result.loops] == ["updates of SGD"]


@pytest.mark.usefixtures("captured")
def test_a_graph_for_every_shape_is_one_loop(tmp_path: Path) -> None:
    """No optimizer's: a server that answers. Each replay is a step, whichever graph it is of."""
    graphs = [Graph(lambda: None) for _ in range(3)]
    with api.watch(tmp_path / "run", show=False) as watched:
        for number in range(100):
            graphs[number * number % 3].replay()
    assert (watched.result.step.loop, watched.result.loops) == ("6:0", ())
    assert watched.result.step.count >= 100 - PATIENCE_TRAINING - 1


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("count", [3, 100])
def test_a_graph_for_every_layer_is_one_step_for_all(count: int, tmp_path: Path) -> None:
    graphs = [Graph(lambda: None) for _ in range(count)]
    with api.watch(tmp_path / "run", show=False) as watched:
        for _ in range(60):
            for graph in graphs:
                graph.replay()
    assert (watched.result.step.loop, watched.result.loops) == ("6:0", ())
    assert 60 - PATIENCE_TRAINING <= watched.result.step.count <= 60


@pytest.mark.usefixtures("captured")
def test_replays_between_updates_are_no_steps(tmp_path: Path) -> None:
    """A rollout of a graphed policy, and a step that trains it."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    graph = Graph(lambda: time.sleep(0.0005))
    with api.watch(tmp_path / "run", show=False) as watched:
        for _ in range(30):
            for _ in range(PATIENCE_TRAINING + 8):
                graph.replay()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert (watched.result.step.kind, watched.result.step.loop, watched.result.step.count) == ("training", "1:0", 29)


def test_the_programs_own_loop_runs_in_no_model_and_no_backward_pass() -> None:
    is_top_level, told = top_level(), list[bool]()

    def looks(x: torch.Tensor) -> torch.Tensor:
        told.append(is_top_level(sys._getframe()))
        return x

    class Looks(torch.nn.Module):
        forward = staticmethod(looks)

    x = torch.ones(1, requires_grad=True)
    Looks()(looks(x))
    x.register_hook(looks)
    x.sum().backward()
    assert told == [True, False, False] and is_top_level(None)


@pytest.mark.usefixtures("captured")
def test_a_graph_inside_a_module_is_part_of_its_forward(tmp_path: Path) -> None:
    """torch.cuda.make_graphed_callables, torch.compile(mode="reduce-overhead")."""

    class Graphed(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2 * PATIENCE_TRAINING):
                graph.replay()
            return x @ self.weight

    model, graph = Graphed(4, 4), Graph(lambda: None)
    with api.watch(tmp_path / "run", show=False) as watched, torch.no_grad():
        for _ in range(100):
            model(torch.ones(2, 4))
    assert (watched.result.step.loop, watched.result.loops) == ("2:0", ())


def test_steps_alone_say_so_in_a_notebook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(api.steps([1, 2])) == [1, 2] and capsys.readouterr().err == ""
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    assert list(api.steps([1, 2])) == [1, 2]
    assert capsys.readouterr().err == "gobrrr: nothing is watched here; put the loop below `with gobrrr.watch():`\n"
