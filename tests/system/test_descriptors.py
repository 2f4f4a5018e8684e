"""Descriptors that a program closes behind our back: its own files get no byte of ours, and lose none."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import threading
from array import array
from pathlib import Path

import pytest

from gobrrr.capture.session.journal import JournalWriter
from gobrrr.recording.run_folder.journal import read_journal
from gobrrr.system.descriptors import HIGH, NEW, Held
from gobrrr.trial.arm import protocol


def held(path: Path) -> Held:
    return Held(os.open(path, NEW, 0o600))


def test_it_lies_high_and_is_not_handed_on(tmp_path: Path) -> None:
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    fd = held(tmp_path / "f").fd
    assert fd >= min(HIGH, 900) and not os.get_inheritable(fd)
    again = os.open(os.devnull, os.O_RDONLY)
    os.close(again)
    assert again == lowest, "the program's next file has the number of a plain run"
    os.close(fd)


@pytest.mark.parametrize(("limit", "least"), [(40, 20), (200, 136), (1024, 960)])
def test_under_a_low_limit_it_lies_as_high_as_there_is_room(limit: int, least: int, tmp_path: Path) -> None:
    code = (
        "import os, resource, sys; from gobrrr.system.descriptors import NEW, Held; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); print(Held(os.open(sys.argv[1], NEW)).fd)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "f"], capture_output=True, text=True)
    assert int(done.stdout) == least, done.stderr


def test_a_number_that_stands_for_another_file_is_nobodys(tmp_path: Path) -> None:
    ours = held(tmp_path / "ours")
    number = ours.fd
    with (tmp_path / "theirs").open("wb") as file:
        os.dup2(file.fileno(), number)
        assert ours.fd == -1
        ours.close()
        os.fstat(number)  # still open: it is the program's
        os.close(number)


def test_a_closed_number_is_noticed(tmp_path: Path) -> None:
    ours = held(tmp_path / "ours")
    os.close(ours.fd)
    assert ours.fd == -1
    ours.close()


def test_closing_twice_closes_once(tmp_path: Path) -> None:
    ours = held(tmp_path / "ours")
    number = ours.fd
    ours.close()
    with pytest.raises(OSError, match="Bad file"):
        fcntl.fcntl(number, fcntl.F_GETFD)
    ours.close()


def test_a_journal_ends_when_its_descriptor_is_another_file(tmp_path: Path) -> None:
    ended: list[OSError] = []
    writer = JournalWriter(tmp_path / "j", ended.append)
    writer.json({"a": 1})
    with (tmp_path / "theirs").open("wb") as file:
        os.dup2(file.fileno(), writer._held.fd)
        writer.json({"b": 2})
        writer.events(array("q", [1, 2, 3, 4]))
        writer.close()
    assert (tmp_path / "theirs").read_bytes() == b""
    assert read_journal(tmp_path / "j").records == ({"a": 1},)
    assert len(ended) == 1 and writer.error is ended[0]


def test_a_journal_is_new_private_and_no_link(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600
    writer.close()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("j", "link"):
        with pytest.raises(FileExistsError):
            JournalWriter(tmp_path / name)
    assert not (tmp_path / "elsewhere").exists()


def test_a_fifo_that_the_program_closed_is_opened_anew(tmp_path: Path) -> None:
    protocol.make(tmp_path)
    mine, other = protocol.Line(tmp_path / protocol.TOLD), protocol.Line(tmp_path / protocol.TOLD)
    number = mine._held.fd
    with (tmp_path / "theirs").open("wb") as file:
        os.dup2(file.fileno(), number)
        mine.send("ready", pid=1)
    assert (tmp_path / "theirs").read_bytes() == b""
    assert other.receive(5.0) == {"kind": "ready", "pid": 1}
    mine.close()
    other.close()
    os.close(number)


def test_a_line_that_another_thread_closes_is_not_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """poll() says of a closed descriptor that there is something; the FIFO opened anew has nothing."""
    protocol.make(tmp_path)
    line, heard = protocol.Line(tmp_path / protocol.TOLD), []

    class Closed:
        def register(self, *_: int) -> None: ...

        def poll(self, *_: object) -> list[tuple[int, int]]:
            line.close()
            return [(0, select.POLLNVAL)]

    monkeypatch.setattr(protocol.select, "poll", Closed)
    reads = threading.Thread(target=lambda: heard.append(line.receive(0.05)), daemon=True)
    reads.start()
    reads.join(10)
    assert heard == [None]
    line.close()
