"""What a disk gives back: every way is read, nothing stays behind, and what cannot be had is said."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gobrrr.errors import GobrrrError
from gobrrr.machine.measure import disk
from gobrrr.report.machine import disk as disk_render

SMALL = 40 * disk.SAMPLE


def test_all_ways_are_read_and_nothing_is_left(tmp_path: Path) -> None:
    found = disk.measure(tmp_path, SMALL, 10.0)
    assert found.samples == 40 and not list(tmp_path.iterdir())
    warm = [one for one in found.readings if not one.cold]
    assert len({(one.layout, one.order) for one in warm}) == len(warm) == 5
    assert all(one.rate > 0 and one.samples == 40 and one.complete for one in warm)
    assert all(abs(one.rate / one.samples_per_second - disk.SAMPLE) < 1 for one in warm)
    assert msgspec.json.decode(msgspec.json.encode(found), type=disk.Disk) == found


def test_every_way_gives_the_same_samples(tmp_path: Path) -> None:
    disk._write(tmp_path, 20, float("inf"))
    order = __import__("numpy").arange(20)
    ways = [[bytes(data) for data in read(tmp_path, order)] for read in (disk._files, disk._archive, disk._mapped)]
    assert ways[0] == ways[1] == ways[2] and len(set(ways[0])) == 20
    assert [bytes(one) for one in disk._mapped(tmp_path, order[::-1])] == ways[0][::-1]


def test_where_pages_stay_cold_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_in_memory", lambda path: True)
    found = disk.measure(tmp_path, SMALL, 10.0)
    assert not any(one.cold for one in found.readings) and "cold could not be had" in found.notes[0]
    out = io.StringIO()
    disk_render.show(found, "here", out)
    assert "cold could not be had" in out.getvalue() and disk_render.COLD not in out.getvalue()


def test_a_page_that_was_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "fresh"
    path.write_bytes(bytes(1 << 16))
    assert disk._in_memory(path)


def test_time_that_is_up_makes_a_part(tmp_path: Path) -> None:
    found = disk.measure(tmp_path, SMALL, 0.0)
    assert found.samples == 16
    out = io.StringIO()
    disk_render.show(
        msgspec.structs.replace(
            found, readings=tuple(msgspec.structs.replace(one, complete=False) for one in found.readings)
        ),
        "here",
        out,
    )
    assert "small files, in order" in out.getvalue() and "/s *" in out.getvalue() and "* of a part" in out.getvalue()


@pytest.mark.parametrize("where", ["_flush", "_timed"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupted(*_: Any) -> Any:
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(disk, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.measure(tmp_path, SMALL, 10.0)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_measured_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GobrrrError, match="is no folder"):
        disk.measure(tmp_path / "none")
    with pytest.raises(GobrrrError, match="MiB are wanted"):
        disk.measure(tmp_path, 1 << 60)
    monkeypatch.setattr(os, "mkdir", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(GobrrrError, match=r"cannot measure in .*Permission denied"):
        disk.measure(tmp_path, SMALL)
    monkeypatch.undo()
    monkeypatch.setattr(disk, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(GobrrrError, match="No space left"):
        disk.measure(tmp_path, SMALL)
    assert not list(tmp_path.iterdir()) and shutil.disk_usage(tmp_path).free
