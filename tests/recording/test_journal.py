"""The journal: what the writer in the watched program puts down, the reader takes up, whatever happened between."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import threading
import zlib
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.capture.session import journal as capture_journal
from gobrrr.capture.session.journal import JournalWriter
from gobrrr.errors import TraceError
from gobrrr.recording.run_folder.journal import read_journal
from gobrrr.recording.trace_files.limits import Limits

INT64 = st.integers(-(2**63), 2**63 - 1)


def frame(kind: bytes, payload: bytes, length: int | None = None) -> bytes:
    body = struct.pack("<cI", kind, len(payload) if length is None else length) + payload
    return body + struct.pack("<I", zlib.crc32(body))


def write(path: Path) -> bytes:
    writer = JournalWriter(path)
    writer.json({"facts": {"name": "ä\ud800", "n": [1, None]}})
    writer.events(array("q", [10, 1, 2, 3, 20, 1, 2, -3]))
    writer.json({"end": True})
    writer.close()
    return path.read_bytes()


def test_round_trip(tmp_path: Path) -> None:
    data = write(tmp_path / "rank0.journal")
    journal = read_journal(tmp_path / "rank0.journal")
    assert journal.events.tolist() == [[10, 1, 2, 3], [20, 1, 2, -3]]
    assert journal.events.dtype == np.int64
    assert journal.records == ({"facts": {"name": "ä\ud800", "n": [1, None]}}, {"end": True})
    assert (journal.truncated, journal.note) == (False, "")
    assert data.endswith(frame(b"E", array("q", [10, 1, 2, 3, 20, 1, 2, -3]).tobytes()) + frame(b"J", b'{"end":true}'))


@given(st.lists(st.lists(st.tuples(INT64, INT64, INT64, INT64), max_size=5), max_size=5))
def test_any_events_come_back(tmp_path_factory: pytest.TempPathFactory, frames: list[list[tuple[int, ...]]]) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    writer = JournalWriter(path)
    for rows in frames:
        writer.events(array("q", [value for row in rows for value in row]))
    writer.close()
    assert read_journal(path).events.tolist() == [list(row) for rows in frames for row in rows]


def test_large_event_arrays_are_cut_into_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_journal, "MAX_EVENTS_PER_FRAME", 3)
    writer = JournalWriter(tmp_path / "j")
    writer.events(array("q", range(40)))
    writer.close()
    assert (tmp_path / "j").read_bytes().startswith(frame(b"E", array("q", range(12)).tobytes()))
    assert read_journal(tmp_path / "j").events.ravel().tolist() == list(range(40))


def test_every_truncation_keeps_the_whole_frames(tmp_path: Path) -> None:
    data = write(tmp_path / "j")
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 9 + struct.unpack("<I", data[ends[-1] + 1 : ends[-1] + 5])[0])
    for cut in range(len(data) + 1):
        (tmp_path / "torn").write_bytes(data[:cut])
        journal = read_journal(tmp_path / "torn")
        assert len(journal.records) + len(journal.events) // 2 == sum(end <= cut for end in ends[1:])
        assert journal.truncated == (cut not in ends)
        assert bool(journal.note) == journal.truncated


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    data = write(tmp_path / "j")
    for place in range(len(data)):
        (tmp_path / "bad").write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        assert read_journal(tmp_path / "bad").truncated, place


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (frame(b"J", b"{}", 0xFFFFFFFF), "ends within a frame at byte 18"),
        (b"\x00" * 50, "no frame begins at byte 18"),
        (frame(b"E", b"1234567"), "are not whole"),
        (frame(b"E", bytes(16)), "are not whole"),
        (frame(b"J", b"[1]"), "not a JSON object"),
        (frame(b"J", b"{"), "not JSON"),
        (frame(b"J", b"[" * 100_000), "not JSON"),
        (b"\x1f\x8b rubbish", "no frame begins at byte 18"),
    ],
)
def test_hostile_frames_stop_the_reading_with_a_note(tmp_path: Path, data: bytes, note: str) -> None:
    (tmp_path / "j").write_bytes(frame(b"J", b'{"a":NaN}') + data)
    journal = read_journal(tmp_path / "j")
    assert journal.records == ({"a": None},)
    assert journal.truncated
    assert note in journal.note


def test_limits_name_their_flag(tmp_path: Path) -> None:
    write(tmp_path / "j")
    with pytest.raises(TraceError, match="--max-journal-frame-bytes"):
        read_journal(tmp_path / "j", Limits(journal_frame_bytes=20))
    with pytest.raises(TraceError, match="--max-file-bytes"):
        read_journal(tmp_path / "j", Limits(file_bytes=20))


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_journal(tmp_path / "none")
    with pytest.raises(TraceError, match="directory"):
        read_journal(tmp_path)
    (tmp_path / "empty").touch()
    journal = read_journal(tmp_path / "empty")
    assert (len(journal.events), journal.records, journal.truncated) == (0, (), False)


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.json({"who": "parent"})
    child = os.fork()
    if child == 0:
        writer.json({"who": "child"})
        writer.events(array("q", [1, 2, 3, 4]))
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    writer.json({"who": "parent again"})
    writer.close()
    assert [r["who"] for r in read_journal(tmp_path / "j").records] == ["parent", "parent again"]


def test_a_kill_leaves_what_was_written(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom array import array\nfrom gobrrr.capture.session.journal import JournalWriter\n"
        "w = JournalWriter(sys.argv[1])\nw.json({'a': 1})\nw.events(array('q', [1, 2, 3, 4]))\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    path = str(tmp_path / "j")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", code, path], env=env).returncode == -9
    journal = read_journal(tmp_path / "j")
    assert (journal.records, journal.events.tolist(), journal.truncated) == (({"a": 1},), [[1, 2, 3, 4]], False)


def test_a_full_disk_ends_the_journal_and_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.json({"a": 1})
    real, calls = os.write, []

    def full(fd: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data[:4]))

    monkeypatch.setattr(os, "write", full)
    writer.json({"b": 2})
    monkeypatch.undo()
    writer.json({"c": 3})
    writer.close()
    assert writer.error is not None and writer.error.errno == errno.ENOSPC
    journal = read_journal(tmp_path / "j")
    assert journal.records == ({"a": 1},) and journal.truncated


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    data = write(tmp_path / "j")
    assert len(data) > 60 and len(read_journal(tmp_path / "j").records) == 2


def test_threads_do_not_mix_their_frames(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")

    def work(number: int) -> None:
        for i in range(50):
            writer.events(array("q", [i, number, 0, 0] * 20))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    journal = read_journal(tmp_path / "j")
    assert journal.events.shape == (4 * 50 * 20, 4) and not journal.truncated


def test_wrong_arrays_are_refused_and_odd_values_written_as_text(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    for bad in (array("q", [1, 2, 3]), array("i", [1, 2, 3, 4])):
        with pytest.raises(ValueError, match="quadruples"):
            writer.events(bad)
    writer.json({"path": Path("x"), "nan": float("nan")})
    writer.close()
    writer.close()
    writer.json({"after": "close"})
    assert read_journal(tmp_path / "j").records == ({"path": "x", "nan": None},)
