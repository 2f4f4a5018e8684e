"""Where an arm's temporary files and caches go, and what is said of its protection."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gobrrr.trial.sandbox import landlock, limits
from gobrrr.trial.sandbox.limits import Limits
from gobrrr.trial.sandbox.writes import PROTECTION, PYTHON, UNPROTECTED, WRITABLE

NONE = dict.fromkeys(name for name, _, _ in limits.CACHES)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the folders `home`, `project`, `temporary` and an arm's `arm`."""
    for name in ("home", "project", "temporary", "arm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(limits, "TEMPORARY", ())
    monkeypatch.setattr(landlock, "means", lambda: landlock.LANDLOCK)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def start(places: Path, env: dict[str, str] | None = None, within: Limits = limits.AT_HOME, source: str = "project"):
    made = limits.start(["train"], env or {}, places / "arm", places / source, within)
    return made, {Path(name) for name in (places / "arm" / WRITABLE).read_text().split("\0")}


def test_temporary_files_go_where_they_always_go(places: Path) -> None:
    made, writable = start(places)
    assert made.scratch is None and "TMPDIR" not in made.env
    assert {places / "temporary", places / "arm", Path("/dev"), Path("/proc")} <= writable
    assert not {places, places / "project", places / "home"} & writable


def test_who_works_below_the_temporary_files_gets_others_with_a_short_name(places: Path) -> None:
    (places / "temporary" / "deep").mkdir()
    made, writable = start(places, source="temporary/deep")
    assert made.scratch is not None and made.env["TMPDIR"] == str(made.scratch) and made.scratch in writable
    assert places / "temporary" not in writable
    assert len(made.scratch.name) < len("gobrrr-0123456789")
    assert Path(made.env["TORCHINDUCTOR_CACHE_DIR"]) == places / "arm" / "caches" / "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize("env", [{}, {limits.INDUCTOR: "usual"}, {limits.INDUCTOR: "relative/place"}])
def test_the_users_compiled_code_is_never_written_to(env: dict[str, str], places: Path) -> None:
    """A library that an arm was killed over, half written, broke every later program that needed it."""
    env = {name: str(places / value) if value == "usual" else value for name, value in env.items()}
    (places / "usual").mkdir()
    within = Limits(caches=places / "caches")
    made, writable = start(places, env, within)
    assert Path(made.env[limits.INDUCTOR]) == places / "caches" / limits.INDUCTOR in writable
    assert places / "usual" not in writable


def test_libraries_that_are_half_written_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / limits.INDUCTOR / "ab"
    folder.mkdir(parents=True)
    for name, mode in (("whole.so", 0o755), ("half.so", 0o644), ("code.cpp", 0o644)):
        (folder / name).touch()
        (folder / name).chmod(mode)
    limits.mend(tmp_path)
    limits.mend(tmp_path / "none")
    assert {each.name for each in folder.iterdir()} == {"whole.so", "code.cpp"}


@pytest.mark.skipif(not landlock.means(), reason="this kernel has no means")
def test_a_project_below_the_temporary_files_leaves_nothing_there(places: Path) -> None:
    from gobrrr.pipeline import first_run

    (places / "temporary" / "deep").mkdir()
    code = "import tempfile; open(tempfile.mkdtemp() + '/x', 'w')"
    within = Limits(caches=places / "ours")
    clock = first_run.Clock(time.monotonic(), 200.0)
    made = first_run.watched([sys.executable, "-c", code], places / "temporary" / "deep", places / "run", within, clock)
    assert made == (0, False, None) and [entry.name for entry in (places / "temporary").iterdir()] == ["deep"]


def test_a_cache_that_exists_stays_and_one_that_does_not_is_made_among_ours(places: Path) -> None:
    (places / "home" / ".cache").mkdir()
    (places / "models").mkdir()
    env = {"HF_HOME": str(places / "models"), "TORCH_HOME": str(places / "none"), "NUMBA_CACHE_DIR": "relative"}
    made, writable = start(places, env, Limits(caches=places / "ours"))
    assert {places / "home" / ".cache", places / "models", places / "ours" / "TORCH_HOME"} <= writable
    assert places / "ours" / "TRITON_HOME" / ".triton" in writable and places / "home" not in writable
    assert made.env["TRITON_HOME"] == str(places / "ours" / "TRITON_HOME") and "XDG_CACHE_HOME" not in made.env
    assert made.env["HF_HOME"] == str(places / "models") and made.env["NUMBA_CACHE_DIR"] == "relative"
    assert not (places / "home" / ".triton").exists() and not (places / "none").exists()


def test_a_cache_that_holds_the_users_folder_is_none(places: Path) -> None:
    made, writable = start(places, {"XDG_CACHE_HOME": str(places)}, Limits(caches=places / "ours"))
    assert places not in writable and made.env["XDG_CACHE_HOME"] == str(places / "ours" / "XDG_CACHE_HOME")


def test_the_protection_is_told_and_chosen(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = start(places)
    assert made.command[-1] == "train" and landlock.LANDLOCK in made.command
    assert "cannot write outside their copy (Landlock)" in limits.told(places, limits.AT_HOME)
    made, _ = start(places, within=Limits(unprotected=True))
    assert made.command == ["train"] and (places / "arm" / PROTECTION).read_text() == UNPROTECTED
    assert "as you asked" in limits.told(places, Limits(unprotected=True))
    monkeypatch.setattr(landlock, "means", lambda: "")
    made, _ = start(places)
    assert made.command == ["train"] and (places / "arm" / PROTECTION).read_text() == PYTHON
    assert "--unprotected" in limits.told(places, limits.AT_HOME)


def test_who_works_in_shared_memory_is_told_that_the_kernel_cannot_help(places: Path) -> None:
    assert limits.protection(Path("/dev/shm/project"), limits.AT_HOME) == PYTHON


def test_nothing_starts_where_nothing_would_be_enforced(tmp_path: Path) -> None:
    for rules in (tmp_path / "missing", tmp_path):
        done = subprocess.run(
            landlock.confined(["true"], landlock.LANDLOCK, str(rules)), capture_output=True, text=True
        )
        assert done.returncode == 125 and "gobrrr: the kernel does not keep it from writing" in done.stderr


@pytest.mark.skipif(not landlock.means(), reason="this kernel has no means")
def test_a_command_that_cannot_be_started_is_told_in_a_line() -> None:
    for command, code in ((["no-such-command"], 127), ([os.devnull], 126)):
        done = subprocess.run(landlock.confined(command, landlock.means(), os.devnull), capture_output=True, text=True)
        assert done.returncode == code and done.stderr.count("\n") == 1 and "cannot start" in done.stderr


@pytest.mark.skipif(not landlock.means(), reason="this kernel has no means")
def test_a_confined_command_is_the_same_process_with_the_same_words(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getpid(), sys.orig_argv[1:2], sys.flags.isolated)"
    process = subprocess.Popen(
        landlock.confined([sys.executable, "-c", code], landlock.means(), os.devnull), stdout=subprocess.PIPE, text=True
    )
    assert process.communicate()[0] == f"{process.pid} ['-c'] 0\n"


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("", ""),
        ("a warning\nthe disk is full\n\n", "the disk is full"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: a\n\nDuring handling of it:\n\n'
            'Traceback (most recent call last):\n  File "b.py", line 2, in f\n    g()\n    ^^^\n'
            "torch._dynamo.exc.Unsupported: no such op\n  a hint\n\nFor more information, try TORCH_LOGS=graph\n",
            "torch._dynamo.exc.Unsupported: no such op",
        ),
        ("Traceback (most recent call last):\n  File", "File"),
    ],
)
def test_the_last_words_of_a_program_are_its_error(stderr: str, said: str, tmp_path: Path) -> None:
    (tmp_path / limits.STDERR).write_text(stderr)
    assert limits.last_words(tmp_path) == said


def test_of_a_long_stderr_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_BYTES", 1000)
    monkeypatch.setattr(limits, "_READ_BYTES", 100)
    with (tmp_path / limits.STDERR).open("ab", buffering=0) as program:
        program.write(b"short\n")
        limits.shorten(tmp_path)
        assert limits.last_lines(tmp_path, 9) == ["short"]
        program.write(b"x" * 2000 + b"\nsecond\n")
        limits.shorten(tmp_path)
        program.write(b"last\n")  # it goes on where the file ends now
        assert (tmp_path / limits.STDERR).stat().st_size == 105
        assert limits.last_lines(tmp_path, 2) == ["second", "last"]
