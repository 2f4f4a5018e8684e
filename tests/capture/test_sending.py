"""What of a worker's CPU time goes into handing batches over: that of the threads that do so, by their names."""

from __future__ import annotations

import threading
from multiprocessing.queues import Queue

import pytest
import torch

from gobrrr.capture.windows import workers
from gobrrr.capture.windows.workers import _sent_cpu_ns


def works_in(name: str) -> int:
    """By how much it grows while a thread of this name computes."""
    done, seen = threading.Event(), threading.Event()

    def work() -> None:
        for _ in range(30):
            torch.ones(1 << 16).cumsum(0)
        done.set()
        seen.wait(10)

    before = _sent_cpu_ns()
    thread = threading.Thread(target=work, name=name)
    thread.start()
    done.wait(10)
    after = _sent_cpu_ns()
    seen.set()
    thread.join()
    if before is None or after is None:
        pytest.skip("the system has no such clock")
    return after - before


def test_only_threads_that_send_count() -> None:
    assert works_in("QueueFeederThread") > 0 and works_in("Thread-3 (_serve)") > 0
    assert works_in("mine") == 0


def test_the_threads_are_called_so() -> None:
    """By Python's own queue, which a loader's workers send through."""
    queue: Queue[int] = torch.multiprocessing.get_context("fork").Queue()
    queue.put(1)
    assert any(thread.name.startswith(workers._FEEDER) for thread in threading.enumerate())
    assert queue.get() == 1
    queue.close()
    queue.join_thread()


def test_where_there_is_no_such_clock_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cpu_clock", lambda _: None)
    assert _sent_cpu_ns() is None
