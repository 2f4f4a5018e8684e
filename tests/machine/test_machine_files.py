"""Files of ours on a shared computer: what others laid there is neither read, waited for, followed nor written into."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec
import pytest

from gobrrr.machine.measure import store
from gobrrr.system import files
from tests.support.machine_samples import machine


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_plain_files_are_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "zero", "absent"):
        with pytest.raises(OSError):
            files.read(tmp_path / name, 10)
    (tmp_path / "file").write_bytes(b"x" * 20)
    assert files.read(tmp_path / "file", 10) == b"x" * 11
    assert files.read(tmp_path / "file", 100) == b"x" * 20


def test_of_a_log_without_end_no_more_is_read_than_is_there(tmp_path: Path) -> None:
    """The kernel's is called a plain file; who has none of it, or no right to it, is told so."""
    (tmp_path / "log").symlink_to("/proc/kmsg")
    try:
        assert len(files.read(tmp_path / "log", 10)) <= 11
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EPERM, errno.EACCES, errno.ENOENT)


def test_what_is_written_is_its_owner_s_and_whole(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"one")
    assert mode(tmp_path / "a") == 0o600
    mask = os.umask(0o022)
    try:
        files.write(tmp_path / "b", b"two", files.AS_USUAL)
    finally:
        os.umask(mask)
    assert mode(tmp_path / "b") == 0o644
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        files.write(tmp_path / "folder", b"three")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "folder"]


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    (tmp_path / "receipt.json").symlink_to(victim)
    files.write(tmp_path / "receipt.json", b"new")
    assert victim.read_text() == "mine" and not (tmp_path / "receipt.json").is_symlink()


def test_nor_is_what_was_laid_where_it_is_drafted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".guessed.part").hardlink_to(tmp_path / "victim")
    monkeypatch.setattr(files.secrets, "token_hex", lambda num: "guessed")
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "a", b"new")
    assert (tmp_path / "victim").read_text() == "mine"


def test_nothing_is_appended_to_a_link_or_a_pipe(tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    (tmp_path / "journal").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("journal", "pipe"):
        with pytest.raises(OSError):
            files.append(tmp_path / name, b"x")
    assert victim.read_text() == "mine"
    files.append(tmp_path / "own", b"x")
    files.append(tmp_path / "own", b"y")
    assert (tmp_path / "own").read_bytes() == b"xy" and mode(tmp_path / "own") == 0o600


class TestCache:
    @pytest.fixture
    def kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A cache with ceilings in it, as it is made."""
        monkeypatch.setattr(store, "measure_in", lambda interpreter: machine())
        monkeypatch.setattr(store, "torch_version", lambda interpreter: "2.13.0")
        store.load_or_measure(folder=tmp_path / "cache")
        (path,) = (tmp_path / "cache").iterdir()
        return path

    def notes(self, kept: Path) -> list[str]:
        told: list[str] = []
        store.load_or_measure(folder=kept.parent, notify=told.append)
        return told

    def test_is_its_user_s_alone(self, kept: Path) -> None:
        assert mode(kept) == 0o600 and mode(kept.parent) == 0o700
        assert self.notes(kept) == []

    @pytest.mark.parametrize("bits", [0o620, 0o602, 0o666])
    def test_a_file_that_others_may_write_is_not_believed(self, kept: Path, bits: int) -> None:
        kept.chmod(bits)
        assert "others may write into it" in self.notes(kept)[0]
        assert mode(kept) == 0o600, "it is measured again and written anew"

    @pytest.mark.parametrize("bits", [0o770, 0o777])
    def test_nor_a_folder(self, kept: Path, bits: int) -> None:
        kept.parent.chmod(bits)
        told = self.notes(kept)
        assert "others may write into it" in told[0] and "measuring" in told[1]
        assert "cannot be kept" in told[2] and "chmod go-w" in told[2]

    def test_nor_a_link(self, kept: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(machine(cpu="of a stranger")))
        kept.unlink()
        kept.symlink_to(tmp_path / "elsewhere")
        assert "cannot be read" in self.notes(kept)[0]
        assert b"of a stranger" in (tmp_path / "elsewhere").read_bytes()
        assert not kept.is_symlink()

    def test_nor_another_user_s(self, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        there = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: there + 1)
        assert "belongs to another user" in self.notes(kept)[0]

    def test_nor_a_folder_behind_another_user_s_link(
        self, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "link").symlink_to(kept.parent)
        assert files.read_own(tmp_path / "link" / kept.name, 10)
        real = Path.lstat
        facts = os.stat_result([*real(tmp_path / "link")[:4], os.getuid() + 1, *real(tmp_path / "link")[5:]])
        monkeypatch.setattr(Path, "lstat", lambda path: facts if path.name == "link" else real(path))
        with pytest.raises(PermissionError, match="a link that another user has made"):
            files.read_own(tmp_path / "link" / kept.name, 10)

    def test_kept_ceilings_are_found_by_the_version_alone(self, kept: Path) -> None:
        assert store.kept("2.13.0", folder=kept.parent) is not None
        assert store.kept("9.9", folder=kept.parent) is None
        assert store.kept("\udcff/../../x", folder=kept.parent) is None


def test_what_the_user_names_may_be_a_pipe_or_a_link(tmp_path: Path) -> None:
    """`-o /dev/null` as root once replaced the device by a file."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.put(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through" and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    os.close(reader)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for content in (b"one", b"two"):
        files.put(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "kept").read_bytes() == content
