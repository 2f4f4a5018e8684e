"""What a run was started with: commit and edits as git has them, the script, variables; nothing of it fails a run."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from gobrrr.capture.process.setup import noting
from gobrrr.capture.session.records import libraries
from gobrrr.recording.model.setup import Setup
from gobrrr.system import process_tree

COMMAND = ("python", "train.py", "--epochs", "1")


def git(*words: str) -> str:
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"]
    return subprocess.run([*own, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    (tmp_path / "train.py").write_text("print(1)\n")
    git("init")
    git("add", "train.py")
    git("commit", "-m", "one")
    return tmp_path


def noted(command: tuple[str, ...] = COMMAND, **variables: str) -> Setup:
    return noting(command, variables)()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.capture.process.setup.PATIENCE_S", 20.0)


def test_commit_branch_and_script_are_noted(repository: Path) -> None:
    found = noted()
    assert (found.commit, found.branch, found.edited) == (git("rev-parse", "HEAD"), "trunk", False)
    assert found.script == hashlib.sha256(b"print(1)\n").hexdigest()[:16]


def test_edits_of_tracked_files_count_and_new_files_do_not(repository: Path) -> None:
    (repository / "notes.txt").write_text("new\n")
    assert noted().edited is False
    (repository / "train.py").write_text("print(2)\n")
    assert noted().edited is True


def test_a_repository_is_not_written_into(repository: Path) -> None:
    os.utime(repository / "train.py", (1, 1))  # a plain git status would refresh the index
    before = (repository / ".git" / "index").read_bytes()
    assert noted().edited is False
    assert (repository / ".git" / "index").read_bytes() == before


def test_no_monitor_of_files_is_started(repository: Path) -> None:
    trap = repository / "trap"
    trap.write_text("#!/bin/sh\ntouch sprung\n")
    trap.chmod(0o755)
    git("config", "core.fsmonitor", str(trap))
    assert noted().commit
    assert not (repository / "sprung").exists()


def test_a_submodule_that_was_edited_is_no_edit_and_is_not_looked_into(repository: Path) -> None:
    git("init", "inner")
    (repository / "inner" / "a.py").write_text("1\n")
    git("-C", "inner", "add", "a.py")
    git("-C", "inner", "commit", "-m", "two")
    git("add", "inner")
    git("commit", "-m", "three")
    (repository / "inner" / "a.py").write_text("2\n")
    assert noted().edited is False


def test_what_git_has_started_is_stopped_with_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.capture.process.setup.PATIENCE_S", 0.5)
    (repository / ".gitattributes").write_text("train.py filter=slow\n")
    git("config", "filter.slow.clean", "echo $$ > pid; sleep 600 & echo $! >> pid; wait")
    (repository / "train.py").write_text("print(3)\n")
    assert noted().edited is None
    pids = [*map(int, (repository / "pid").read_text().split())]
    for _ in range(250):
        if not (left := [pid for pid in pids if not process_tree.is_over(pid)]):
            break
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(pids) == 2 and not left


def test_a_hook_of_another_repository_does_not_say_which(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git("rev-parse", "HEAD")
    git("init", "--bare", "other")
    monkeypatch.setenv("GIT_DIR", str(repository / "other"))
    monkeypatch.setenv("GIT_WORK_TREE", "/")
    assert noted().commit == commit


def test_of_a_module_no_argument_is_taken_for_the_script(repository: Path) -> None:
    assert noted(("python", "-m", "pkg.train", "train.py")).script == ""
    assert noted(("env", "A=1", "python", "-u", "train.py", "other.py")).script == noted().script


def test_the_script_says_which_repository(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git("rev-parse", "HEAD")
    monkeypatch.chdir("/")
    assert noted(("python", str(repository / "train.py"))).commit == commit
    assert noted(("torchrun", "--nproc-per-node", "2", str(repository / "train.py"))).commit == commit


def test_a_detached_head_has_no_branch_and_a_new_repository_no_commit(repository: Path) -> None:
    git("checkout", "--detach")
    assert noted().branch == "" and noted().commit
    (repository / "new").mkdir()
    os.chdir(repository / "new")
    git("init")
    assert noted().commit == ""


@pytest.mark.parametrize("script", [None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\nexec sleep 600\n", "#!/bin/sh\necho x\n"])
def test_a_git_that_is_not_there_or_fails_or_hangs_tells_nothing(
    repository: Path, script: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobrrr.capture.process.setup.PATIENCE_S", 0.05)
    (repository / "bin").mkdir()
    if script is not None:
        (repository / "bin" / "git").write_text(script)
        (repository / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{repository / 'bin'}:/bin" if script else str(repository / "bin"))
    found = noted()
    assert (found.commit, found.branch, found.edited) == ("", "", None)
    assert found.script


def test_variables_that_move_a_step_are_noted_and_secrets_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("OMP", "CUDA", "TORCH", "MALLOC")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("HOME_TOWN", "x")
    found = noted(CUDA_VISIBLE_DEVICES="0,1", TORCH_API_TOKEN="abcdef0123456789").variables
    assert {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0,1"}.items() <= found.items()
    assert "HOME_TOWN" not in found and "abcdef0123456789" not in found.values()


def test_versions_are_those_of_libraries_that_are_imported_and_nothing_is_run_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lazy, known = types.ModuleType("timm"), types.ModuleType("trl")
    lazy.__getattr__ = lambda name: pytest.fail("it was asked")  # type: ignore[method-assign]
    known.__version__ = "1.2"  # type: ignore[attr-defined]
    odd = types.ModuleType("peft")
    odd.__version__ = 3  # type: ignore[attr-defined]
    for name, module in (("timm", lazy), ("trl", known), ("peft", odd), ("vllm", None)):
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    found = libraries()
    assert found["trl"] == "1.2" and not {"timm", "peft", "vllm"} & set(found)
