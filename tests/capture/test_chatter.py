"""What is kept off stderr while the profiler begins and ends, and what is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gobrrr.capture.windows import profiling

KINETO = b"INFO:2026-11-21 01:15:32 26489:26489 Activity.cpp:52] profiler_start\n"
OF_A_RANK = b"[rank0]:[W1129 21:52:15.332666806 execution_trace_observer.cpp:989] Enabling Execution Trace Observer\n"


def _descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_only_the_profilers_own_lines_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    before = _descriptors()
    with profiling.without_chatter():
        os.write(2, b"before\n" + KINETO + OF_A_RANK + b"[rank0]:[W1129 mine.cpp:1] after\n")
    os.write(2, b"then\n")
    assert capfd.readouterr().err == "before\n[rank0]:[W1129 mine.cpp:1] after\nthen\n"
    assert _descriptors() == before


def test_what_a_child_says_that_was_started_meanwhile_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    with profiling.without_chatter():
        child = subprocess.Popen(["sh", "-c", "echo first >&2; read line; echo said >&2"], stdin=subprocess.PIPE)
        while Path("/proc/self/fd/2").stat().st_size < len("first\n"):
            pass
    assert capfd.readouterr().err == "first\n"
    child.communicate(b"go\n")
    with profiling.without_chatter():
        os.write(2, b"second\n")
    profiling.let_through()
    assert sorted(capfd.readouterr().err.split()) == ["said", "second"], "once"
    assert not profiling._inherited, "nobody has it any more"


def test_a_child_that_stays_keeps_one_file(capfd: pytest.CaptureFixture[str]) -> None:
    with profiling.without_chatter():
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    before = _descriptors()
    for _ in range(3):
        with profiling.without_chatter():
            os.write(2, b"x")
    assert _descriptors() == before and len(profiling._inherited) == 1
    child.communicate()
    profiling.let_through()
    assert not profiling._inherited and capfd.readouterr().err == "xxx"
