"""An arm's own working directory: looks like the user's, and nothing of the user's is ever written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr.trial import workspace
from gobrrr.trial.workspace import Workspace, inside
from gobrrr.trial.writes import REFUSED


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


WRITES = {
    "over a file": "open({home!r} + '/data/small', 'w')",
    "onto the end of one": "open({home!r} + '/data/small', 'a')",
    "a new file": "open({home!r} + '/data/new', 'w')",
    "by os.open": "__import__('os').open({home!r} + '/data/new', 0o101)",
    "a folder": "__import__('os').makedirs({home!r} + '/runs/1')",
    "a removal": "__import__('os').remove({home!r} + '/data/small')",
    "a rename": "__import__('os').rename({home!r} + '/data/small', {home!r} + '/data/other')",
    "by shutil": "__import__('shutil').rmtree({home!r} + '/data')",
    "by pathlib": "__import__('pathlib').Path({home!r}, 'data', 'small').write_text('')",
}


def run(code: str, home: Path, work: Path) -> subprocess.CompletedProcess[str]:
    start = f"from gobrrr.trial.writes import keep_out; keep_out({str(home)!r}, {str(work.parent)!r}); "
    scratch = work.parent.parent / "scratch"  # these tests' own folders lie in the system's
    scratch.mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.run([sys.executable, "-c", start + code], cwd=work, env=env, capture_output=True, text=True)


def everything(home: Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


@pytest.mark.parametrize("how", WRITES)
def test_the_users_folder_is_never_written_to(how: str, home: Path, tmp_path: Path) -> None:
    work, before = Workspace(home, tmp_path / "arm" / "work").make(), everything(home)
    done = run(WRITES[how].format(home=str(home)), home, work)
    assert done.returncode == 1 and "gobrrr keeps this trial from writing to" in done.stderr
    assert everything(home) == before and str(home) in (work.parent / REFUSED).read_text()


def test_what_is_written_through_a_link_stays_in_the_workspace(home: Path, tmp_path: Path) -> None:
    work, before = Workspace(home, tmp_path / "arm" / "work").make(), everything(home)
    code = (
        "open('data/large', 'ab').write(b'y'); open('data/small', 'w').write('other'); import os; "
        "os.makedirs('data', exist_ok=True); os.remove('train.py')"
    )
    done = run(code, home, work)
    assert done.returncode == 0, done.stderr
    assert everything(home) == before
    assert (work / "data" / "large").stat().st_size == workspace.SMALL_BYTES + 2
    assert (work / "data" / "small").read_text() == "other" and not (work / "train.py").exists()


def test_reading_is_free_and_so_are_other_folders(home: Path, tmp_path: Path) -> None:
    work = Workspace(home, tmp_path / "arm" / "work").make()
    other = tmp_path / "elsewhere"
    done = run(f"open({str(home / 'data' / 'small')!r}).read(); open({str(other)!r}, 'w')", home, work)
    assert done.returncode == 0 and other.exists()


def test_torch_save_is_kept_out_too(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    work = Workspace(home, tmp_path / "arm" / "work").make()
    code = (
        "import torch; from gobrrr.trial.writes import tell_of_torch_save; tell_of_torch_save(); "
        f"torch.save(1, 'a.pt'); torch.save(1, {str(home / 'b.pt')!r})"
    )
    done = run(code, home, work)
    assert done.returncode == 1 and (work / "a.pt").exists() and not (home / "b.pt").exists()
