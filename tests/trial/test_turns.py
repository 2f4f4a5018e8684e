"""Arms that take each other's cores come up one after the other, and those that do not beside each other."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import Future

from gobrrr.trial.arm import live_arms
from gobrrr.trial.arm.process_group import Family


class Spinning:
    """It is up after so many seconds alone, and makes no way beside others that go on; wants some threads."""

    def __init__(self, seconds: float, threads: int, going: set[Spinning]) -> None:
        self.left, self._threads, self._going, self.paused = seconds, threads, going, 0
        self.future: Future[None] = Future()
        going.add(self)

    def wanting(self) -> int:
        return self._threads if self in self._going else 0

    def pause(self) -> None:
        self.paused += 1
        self._going.discard(self)

    def resume(self) -> None:
        assert not self.future.done(), "who is up stands still"
        self._going.add(self)

    def run(self, seconds: float) -> None:
        if self in self._going and sum(each._threads for each in self._going) <= 4:
            self.left -= seconds
        if self.left <= 0 and not self.future.done():
            self._going.discard(self)
            self.future.set_result(None)


def came_up(arms: list[Spinning], seconds: float = 5.0) -> bool:
    over = threading.Event()

    def clock() -> None:
        while not over.wait(0.01):
            for each in arms:
                each.run(0.01)

    threading.Thread(target=clock, daemon=True).start()
    live_arms.wait_for(
        {each: each.future for each in arms}, time.monotonic() + seconds, 4, threading.Event(), look_s=0.05
    )
    over.set()
    return all(each.future.done() for each in arms)


def test_arms_whose_threads_spin_take_turns() -> None:
    going: set[Spinning] = set()
    arms = [Spinning(0.08, 4, going) for _ in range(5)]
    assert came_up(arms) and all(each.paused for each in arms[1:])


def test_imports_go_on_beside_each_other() -> None:
    going: set[Spinning] = set()
    arms = [Spinning(0.2, 1, going) for _ in range(4)]
    assert came_up(arms) and not any(each.paused for each in arms)


def test_who_comes_up_while_it_is_stopped_stays_so() -> None:
    """It had told that it is ready, and its future came a little later; and all that are up stand still at the end."""
    going: set[Spinning] = set()
    arms = [Spinning(0.3, 4, going), Spinning(60.0, 4, going), Spinning(0.3, 4, going)]

    def comes_up() -> None:
        going.discard(arms[1])
        arms[1].future.set_result(None)

    threading.Timer(0.12, comes_up).start()
    assert came_up(arms) and not going


def test_nobody_is_stopped_once_it_is_over() -> None:
    going: set[Spinning] = set()
    arms = [Spinning(60.0, 4, going) for _ in range(3)]
    over = threading.Event()
    threading.Timer(0.2, over.set).start()
    live_arms.wait_for({each: each.future for each in arms}, time.monotonic() + 60, 4, over, look_s=0.02)
    assert going == set(arms) and arms[0].paused


def test_one_that_is_left_has_no_turns() -> None:
    going: set[Spinning] = set()
    (alone,) = arms = [Spinning(0.1, 99, going)]
    alone._threads = 4
    alone.wanting = lambda: 99  # type: ignore[method-assign]
    assert came_up(arms) and alone.paused == 0


def test_who_is_late_goes_on_when_the_time_is_over() -> None:
    going: set[Spinning] = set()
    arms = [Spinning(60.0, 4, going) for _ in range(3)]
    assert not came_up(arms, seconds=0.3) and going == set(arms)


SLEEPS = "import time; print(flush=True); time.sleep(60)"
SPINS = "print(flush=True)\nwhile True: pass"


def test_threads_that_want_a_core_are_counted_and_those_that_sleep_are_not() -> None:
    counts = []
    for code in (SLEEPS, SPINS):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None and process.stdout.readline()
            family, least = Family(process.pid), 1 << 30
            for _ in range(20):
                time.sleep(0.01)
                least = min(least, family.wanting())
            counts.append(least)
            process.kill()
    assert counts == [0, 1]
