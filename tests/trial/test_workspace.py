"""An arm's own working directory: looks like the user's, and nothing of the user's is ever written to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gobrrr.trial import workspace
from gobrrr.trial.workspace import Workspace, inside


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
    assert not (work / "out" / "work" / "train.py").exists()


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


def test_words_of_the_command_move_with_it(home: Path, tmp_path: Path) -> None:
    work = Workspace(home, tmp_path / "work").make()
    assert inside(str(home / "train.py"), home, work) == str(work / "train.py")
    for word in ("train.py", "--epochs", sys.executable, str(home / "missing.py")):
        assert inside(word, home, work) == word
