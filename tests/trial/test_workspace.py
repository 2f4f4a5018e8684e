"""An arm's own working directory: looks like the user's, and nothing of the user's is ever written to."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.system import files
from gobrrr.trial.arm.side import clear
from gobrrr.trial.sandbox import workspace
from gobrrr.trial.sandbox.workspace import Workspace, inside


@pytest.fixture
def home(tmp_path: Path) -> Path:
    source = tmp_path / "home"
    (source / "data").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / "train.py").write_text("print(1)\n")
    (source / "data" / "small").write_text("small")
    (source / "data" / "large").write_bytes(b"x" * (workspace.SMALL_BYTES + 1))
    return source


def test_a_workspace_holds_copies_links_and_folders_of_its_own(home: Path, tmp_path: Path) -> None:
    work = Workspace(home, tmp_path / "work").make()
    assert (work / "train.py").read_text() == "print(1)\n" and not (work / "train.py").is_symlink()
    assert (work / "data" / "large").is_symlink() and (work / "data").is_dir() and not (work / "data").is_symlink()
    assert not (work / ".git").exists()


def test_links_within_the_folder_lead_to_what_the_copy_has(home: Path, tmp_path: Path) -> None:
    (home / "runs" / "1").mkdir(parents=True)
    (home / "runs" / "latest").symlink_to("1")
    (home / "absolute").symlink_to(home / "train.py")
    (home / "hooks").symlink_to(".git")
    (home / "round").symlink_to("round")
    (tmp_path / "elsewhere").mkdir()
    (home / "away").symlink_to(tmp_path / "elsewhere")
    work = Workspace(home, tmp_path / "work").make()
    (work / "runs" / "latest" / "new").touch()
    assert (work / "runs" / "1" / "new").exists() and not (home / "runs" / "1" / "new").exists()
    assert (work / "absolute").resolve() == (work / "train.py").resolve()
    assert (work / "hooks").resolve() == home / ".git" and (work / "away").resolve() == tmp_path / "elsewhere"
    assert (work / "round").is_symlink()


def test_what_is_too_much_is_one_link(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MOST_ENTRIES", 1)
    monkeypatch.setattr(workspace, "MOST_COPIED_BYTES", 0)
    work = Workspace(home, tmp_path / "work").make()
    assert (work / "data").is_symlink() and (work / "train.py").is_symlink()


def test_a_workspace_below_its_source_does_not_hold_itself(home: Path) -> None:
    work = Workspace(home, home / "out" / "work").make()
    assert not list((work / "out" / "work").glob("**/train.py"))


def test_relative_folders_and_folders_of_results_are_not_mirrored_into_themselves(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    workspace.mark_output(Path("results"))
    (home / "results" / "old").write_text("x")
    work = Workspace(Path(), Path("results", "arm", "work")).make()
    assert not (work / "results").exists() and (work / "train.py").exists()
    beside = Workspace(Path(), Path("other")).make()
    assert not (beside / "other").exists() and not (beside / "results").exists()


@pytest.fixture
def beside(home: Path) -> Path:
    folder = home.parent / "shared"
    folder.mkdir()
    (folder / "x.bin").write_text("theirs")
    return folder


def test_paths_upward_lead_where_the_users_do(home: Path, beside: Path, tmp_path: Path) -> None:
    (home / "deep").mkdir()
    (tmp_path / "elsewhere").mkdir()
    deep = Workspace(home / "deep", tmp_path / "elsewhere" / "work").make()
    assert (deep / ".." / "train.py").read_text() == "print(1)\n" and deep.name == "deep"
    assert (deep / ".." / ".." / "shared" / "x.bin").read_text() == "theirs"
    assert (deep / ".." / ".." / ".." / tmp_path.name / "shared" / "x.bin").read_text() == "theirs"
    assert (deep / "../../..").resolve() == tmp_path / "elsewhere" / "work"


def test_a_mirror_that_is_cleared_takes_nothing_of_the_users_with_it(home: Path, beside: Path, tmp_path: Path) -> None:
    work = Workspace(home, tmp_path / "arm" / "work").make()
    assert (work / ".." / "shared" / "x.bin").exists()
    clear(tmp_path / "arm")
    assert not (tmp_path / "arm").exists()
    assert (beside / "x.bin").read_text() == "theirs" and (home / "data" / "large").exists()


def test_links_beside_the_folder_that_lead_into_it_lead_into_the_mirror(home: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("home")
    (tmp_path / "absolute").symlink_to(home / "data")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "up").symlink_to("..")
    work = Workspace(home, tmp_path / "elsewhere" / "work").make()
    assert (work.parent / "latest").resolve() == work and (work.parent / "absolute").resolve() == work / "data"
    assert (work.parent / "round").is_symlink() and (work.parent / "up").resolve() == tmp_path.parent


def test_results_beside_the_folder_are_no_way_round(home: Path, beside: Path, tmp_path: Path) -> None:
    workspace.mark_output(tmp_path / "shared" / "results")
    (tmp_path / ".gobrrr").mkdir()
    work = Workspace(home, tmp_path / "shared" / "results" / "arm" / "work").make()
    assert (work / "../shared/x.bin").read_text() == "theirs"
    assert not (work / "../shared/results").exists() and not (work / "../.gobrrr").exists()


def test_of_what_lies_beside_a_bounded_number_is_linked_and_folders_first(
    home: Path, beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "MOST_BESIDE", 2)
    for number in range(20):
        (tmp_path / f"{number}.txt").touch()
    work = Workspace(home, tmp_path / "elsewhere" / "work").make()
    assert (work / "../shared/x.bin").exists() and len(list(work.parent.iterdir())) <= 3


def test_a_folder_above_that_cannot_be_read_has_nothing_beside(
    home: Path, beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.scandir

    def denied(path: Path):
        if Path(path) == tmp_path:
            raise PermissionError
        return listed(path)

    monkeypatch.setattr(os, "scandir", denied)
    work = Workspace(home, tmp_path / "elsewhere" / "work").make()
    assert not (work / "../shared").exists() and (work / "train.py").exists()


def test_a_folder_reached_by_a_link_is_where_it_really_lies(home: Path, beside: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(home)
    work = Workspace(tmp_path / "elsewhere" / "link", tmp_path / "arm" / "work").make()
    assert work.name == "home" and (work / "../shared/x.bin").exists()


@pytest.mark.parametrize("source", ["/", "/a", "/a/b/c/d/e"])
def test_paths_in_a_text_become_the_users_own(source: str, tmp_path: Path) -> None:
    mirror = workspace.mirror_of(Path(source), tmp_path)
    assert (
        workspace.as_theirs(f"{mirror}: {mirror}/x.py", Path(source), tmp_path) == f"{source}: {Path(source) / 'x.py'}"
    )
    assert len(mirror.relative_to(tmp_path).parts) <= workspace.LEVELS
    above = Path(source).parent / "lib.py"
    said = f'File "{mirror}/../lib.py"' if source != "/" else f'File "{tmp_path}/lib.py"'
    assert Path(workspace.as_theirs(said, Path(source), tmp_path)[6:-1]).resolve() == above


def test_words_of_the_command_move_with_it(home: Path, tmp_path: Path) -> None:
    work = Workspace(home, tmp_path / "work").make()
    assert inside(str(home / "train.py"), home, work) == str(work / "train.py")
    for word in ("train.py", "--epochs", sys.executable, str(home / "missing.py")):
        assert inside(word, home, work) == word


def test_relative_words_that_lead_out_become_absolute(home: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "main.py").write_text("print(1)\n")
    work = Workspace(home, tmp_path / "elsewhere" / "work").make()
    assert inside("../lib/main.py", home, work) == str(tmp_path / "lib" / "main.py")
    assert inside("data/../../lib", home, work) == str(tmp_path / "lib")
    assert inside("../home/train.py", home, work) == str(work / "train.py")
    assert inside("--data=../lib", home, work) == f"--data={tmp_path / 'lib'}"
    assert inside(f"--data={home / 'data'}", home, work) == f"--data={work / 'data'}"
    for word in ("../missing", "data", ".", "--epochs=3", "..." * 4000, "import torch\nprint('a/../../b')", "a\0b", ""):
        assert inside(word, home, work) == word


def test_of_files_no_more_is_copied_than_they_say_that_they_hold(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of /proc/kmsg, which is empty by its size and never ends; and pipes, which nobody writes to."""
    os.mkfifo(home / "pipe")
    (home / "locked").write_text("x")
    (home / "locked").chmod(0)
    (home / "zzz.py").write_text("z")
    taken: list[int] = []
    opened = files.opened

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            taken.append(-1 if size is None else size)
            return super().read(size)

    def endless(path: Path, *, follow: bool = True) -> BinaryIO:
        with opened(path, follow=follow):
            if path.name == "locked":
                raise PermissionError
            return Endless(b"x" * 1000)

    monkeypatch.setattr(files, "opened", endless)
    work = Workspace(home, tmp_path / "work").make()
    assert (work / "pipe").is_symlink() and (work / "locked").is_symlink()
    assert (work / "train.py").stat().st_size == len("print(1)\n") and (work / "zzz.py").read_bytes() == b"x"
    assert taken and min(taken) >= 0


def test_folders_of_other_file_systems_are_links(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Workspace(home, tmp_path / "work")
    copied._device += 1
    work = copied.make()
    assert (work / "data").is_symlink() and not (work / "train.py").is_symlink()


@pytest.mark.parametrize("place", ["/", "/proc/self/root", "/proc/self", "/sys"])
def test_of_the_whole_computer_no_copy_is_made(place: str) -> None:
    if not Path(place).exists():
        pytest.skip("Linux has it")
    with pytest.raises(GobrrrError) as caught:
        workspace.check(Path(place))
    assert "\n" not in caught.value.message


def test_of_other_folders_it_is(home: Path) -> None:
    workspace.check(home)
