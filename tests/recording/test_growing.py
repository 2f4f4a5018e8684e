"""A journal that still grows: read on from where the last look ended, as whole as if it were read at the end."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.capture.session.journal import JournalWriter
from gobrrr.recording.live import live_journal
from gobrrr.recording.live.live_journal import Growing
from gobrrr.recording.run_folder.journal import read_journal
from gobrrr.recording.trace_files.limits import DEFAULT
from tests.recording.test_journal import frame

MOST = 1 << 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "rank0.journal"
    writer = JournalWriter(path)
    for number in range(6):
        writer.json({"type": "note", "text": "x" * number})
        writer.events(array("q", range(4 * number * number)))
    writer.close()
    return path


@given(st.data())
def test_it_tells_the_frames_that_are_there_wherever_the_file_ended_meanwhile(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content, path = whole.read_bytes(), tmp_path_factory.mktemp("part") / "rank0.journal"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=12)))
    path.touch()
    reader, found = Growing(path), []
    for end in [*cuts, len(content)]:
        path.write_bytes(content[:end])
        found += list(reader.look(data.draw(st.sampled_from([MOST, 40]))))
    while reader.behind:
        found += list(reader.look(40))
    told = read_journal(whole)
    assert len([kind for kind, _ in found if kind == b"J"]) == len(told.records) == 6
    events = b"".join(payload for kind, payload in found if kind == b"E")
    assert events == told.events.astype("<i8").tobytes()
    assert reader.damage == "" and reader.share == 1.0


def test_a_look_takes_no_more_than_it_may(whole: Path) -> None:
    reader = Growing(whole)
    assert len(list(reader.look(1))) == 1
    assert reader.behind and 0 < reader.share < 1


@pytest.mark.parametrize("how", ["shorter", "another"])
def test_a_file_that_is_not_the_same_any_more_begins_anew(how: str, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "rank0.journal"
    path.write_bytes(whole.read_bytes())
    reader = Growing(path)
    list(reader.look(MOST))
    if how == "shorter":
        path.write_bytes(frame(b"J", b"{}"))
    else:
        other = tmp_path / "other"
        other.write_bytes(whole.read_bytes())
        other.replace(path)
    first, *rest = reader.look(MOST)
    assert first == (b"", b"")
    assert len(rest) == (1 if how == "shorter" else 11)


@pytest.mark.parametrize("tail", [
    b"x", frame(b"Z", b""), frame(b"E", bytes(31)), frame(b"E", b"", live_journal.MOST_EVENTS + 32),
    frame(b"J", b"", DEFAULT.journal_frame_bytes + 1),
])  # fmt: skip
def test_what_is_no_frame_ends_the_reading(tail: bytes, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "rank0.journal"
    path.write_bytes(whole.read_bytes() + tail + bytes(100))
    reader = Growing(path)
    assert len(list(reader.look(MOST))) == 11
    assert reader.damage == f"no frame begins at byte {whole.stat().st_size}"
    assert not list(reader.look(MOST)) and not reader.behind


def test_a_wrong_checksum_is_looked_at_again_before_it_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "rank0.journal"
    good, late = frame(b"J", b"{}"), frame(b"J", b'{"late":1}')
    path.write_bytes(good + late[:-4] + bytes(4))
    reader = Growing(path)
    assert list(reader.look(MOST)) == [(b"J", b"{}")]
    assert not reader.damage
    path.write_bytes(good + late)
    assert list(reader.look(MOST)) == [(b"J", b'{"late":1}')]
    path.write_bytes(good + late + late[:-4] + bytes(4))
    for _ in range(live_journal.TORN):
        assert not list(reader.look(MOST))
    assert "checksum" in reader.damage


def test_each_frame_has_its_own_patience(tmp_path: Path) -> None:
    path, good = tmp_path / "rank0.journal", frame(b"J", b"{}")
    reader = Growing(path)
    for num in range(2 * live_journal.TORN):
        path.write_bytes(num * good + good[:-4] + bytes(4))
        assert len(list(reader.look(MOST))) == min(num, 1)
        assert not reader.damage, f"frame {num} was wrong once only"


def test_a_record_that_is_too_large_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rank0.journal"
    path.write_bytes(frame(b"J", b" " * (live_journal.MOST_RECORD + 1)) + frame(b"J", b"{}"))
    assert list(Growing(path).look(MOST)) == [(b"J", b""), (b"J", b"{}")]
