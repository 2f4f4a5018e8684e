"""What py-spy wrote, here and on a stranger's disk, and what it said where it could not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError, TraceError
from gobrrr.recording.live import spied
from gobrrr.recording.live.spy import Spy
from tests.support.py_spy import RECORDED, hanging, refusing, writing


def test_threads_of_a_recorded_file_have_their_stacks_innermost_first() -> None:
    found = spied.read(RECORDED / "loader_main.json")
    assert set(found) == {4100, 32428}
    main = found[4100]
    assert len(main.stack) == 58 and max(main.stack) < len(main.stacks)
    for stack in main.stacks:
        assert main.frames[stack[-1]][:2] == ("/home/user/train.py", "<module>")
    users = {file for file, _, _, own in main.frames if own}
    assert users == {"/home/user/train.py"}


def document(*samples: list[int], name: str = 'Thread 7 "MainThread"', line: object = 3) -> bytes:
    frames = [{"name": "step", "file": "/home/user/train.py", "line": line, "col": None}]
    return json.dumps({"profiles": [{"name": name, "samples": samples}], "shared": {"frames": frames}}).encode()


def test_frames_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(document([0, 5, -1], [0] * 10_000, line=10**12))
    found = spied.read(file)[7]
    assert found.stacks == ((0,), (0,) * spied.MAX_DEPTH)
    assert found.frames[0][2] == 0


def test_of_a_deep_stack_the_inner_end_is_kept(tmp_path: Path) -> None:
    frames = [{"name": str(n), "file": "/home/user/train.py", "line": 1} for n in range(1000)]
    stack = [{"name": "Thread 7", "samples": [[*range(1000)]]}]
    (tmp_path / "a.json").write_text(json.dumps({"profiles": stack, "shared": {"frames": frames}}))
    (kept,) = spied.read(tmp_path / "a.json")[7].stacks
    assert kept == tuple(range(999, 999 - spied.MAX_DEPTH, -1))


def test_a_profile_that_names_no_thread_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(document([0], name="Thread of mine"))
    assert spied.read(file) == {}
    file.write_bytes(document([0], name='Thread 0x1F "x"'))
    assert set(spied.read(file)) == {31}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"profiles": 1}', document(["a"]), b'{"profiles":' + b"[" * 100_000, b"\xff\xfe{}"],  # type: ignore[list-item]
)
def test_anything_else_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(data)
    with pytest.raises(TraceError, match="not what py-spy writes") as refused:
        spied.read(file)
    assert "\n" not in refused.value.message


def test_a_file_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spied, "MAX_BYTES", 10)
    file = tmp_path / "a.json"
    file.write_bytes(document([0]))
    with pytest.raises(TraceError, match="more than 10 bytes"):
        spied.read(file)


def error_of(program: Path, folder: Path, patience_s: float = 10) -> GobrrrError:
    spy = Spy(str(program), os.getpid(), folder, 1, 10)
    while "refuses" in program.name and not spy.over():
        pass
    spy.end()
    assert not spy.wrote(patience_s)
    spy.kill()
    return spy.error()


@pytest.mark.parametrize(
    ("said", "why", "hint"),
    [
        (
            "Permission Denied: Try running again with elevated permissions by going 'sudo !!'",
            "may not be read",
            "sudo",
        ),
        ("Error: Failed to suspend process\nReason: EPERM: Operation not permitted", "may not be read", "ptrace_scope"),
        ("Error: Failed to find python version from target process\n\nStack backtrace:\n 0: x", "no Python", "pgrep"),
        ("Error: Failed to get process executable name. Check that the process is running.", "has ended", "pgrep"),
        ("Error: the moon is full\nStack backtrace: 0: x", "the moon is full", "try again"),
    ],
)
def test_what_py_spy_says_is_one_line_with_what_to_do(said: str, why: str, hint: str, tmp_path: Path) -> None:
    error = error_of(refusing(tmp_path / "refuses", said), tmp_path)
    assert why in error.message and hint in error.hint and "\n" not in error.message + error.hint


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    assert "did not answer" in error_of(hanging(tmp_path / "hangs"), tmp_path, 0.2).message


def test_one_that_writes_is_read(tmp_path: Path) -> None:
    spy = Spy(str(writing(tmp_path / "writes", "loader_main.json")), os.getpid(), tmp_path, 1, 10)
    while not (tmp_path / "began").exists():
        pass
    spy.end()
    assert spy.wrote(10)
    assert os.getpid() in spied.read(spy.file)
