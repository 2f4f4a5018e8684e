"""The folder of a run: a new one, for this run alone, that others cannot look into."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from gobrrr.errors import GobrrrError
from gobrrr.system.commands import program_of
from gobrrr.system.processes import is_gone

HOME = ".gobrrr"
PRIVATE = 0o700  # mode of a run's folder: the owner's alone
CLAIM = ".claim"
"""File of a run's folder, made exclusively: two runs that are given one folder at once can't both have made it."""
GAUGES = "gauges.jsonl"
"""File of what the computer's gauges said while the program ran."""
_CLEARING = ".clearing"
_NOTE = re.compile(r"seen-(\d{1,9})\.(?:json|work|listens)")
"""File that a process leaves which gobrrr reached, whether or not it makes a step."""
_NEW = "name a new folder: an earlier run is never written over"


def of_run(named: str | None, command: Sequence[str], prefix: str = "") -> Path:
    """The folder that `-o` named, which must be new or empty, but for what a run has left that recorded nothing; or a
    new one below .gobrrr. Raises GobrrrError."""
    if named is None:
        return fresh(prefix + _name(command))
    folder = Path(named)
    if _left(folder):
        _clear(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GobrrrError(f"{folder} is not empty", _NEW)
    return claim(folder)


def _left(folder: Path) -> list[Path]:
    """All that is in it, where that is what a run leaves that ended before its first step, and none of it lives."""
    files = [file for file in folder.iterdir() if file.name != _CLEARING] if folder.is_dir() else []
    pids = {int(found[1]) for file in files if (found := _NOTE.fullmatch(file.name))}
    ours = all(file.name in (CLAIM, GAUGES) or _NOTE.fullmatch(file.name) for file in files)
    return files if ours and pids and all(map(is_gone, pids)) else []


def _clear(folder: Path) -> None:
    """Take out what is left, looked at once more where nobody else does the same: another run may have come first."""
    with contextlib.suppress(OSError):
        os.close(os.open(folder / _CLEARING, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            for file in _left(folder):
                file.unlink()
        finally:
            (folder / _CLEARING).unlink()


def fresh(name: str) -> Path:
    """.gobrrr/<name>-<time>, or with a number behind it where another run has taken that. Raises GobrrrError."""
    home, stem = Path(HOME), f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        with contextlib.suppress(FileExistsError):
            home.mkdir(PRIVATE)
            (home / ".gitignore").write_text("*\n")  # who takes it out keeps it out
        for number in itertools.count(1):
            folder = home / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir(PRIVATE)
                break
            except FileExistsError:
                continue
    except OSError as error:
        raise _unwritable(home / stem, error) from None
    return claim(folder)


def claim(folder: Path) -> Path:
    """Make it, where it is not there yet, and take it for one run. Raises GobrrrError where another run has it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(PRIVATE, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            if any(folder.glob("rank*.journal")):
                raise FileExistsError
            os.close(os.open(folder / CLAIM, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return folder
    except OSError as error:
        raise _unwritable(folder, error) from None
    raise GobrrrError(f"{folder} holds a recording already", _NEW)


def _name(command: Sequence[str]) -> str:
    program = program_of(command)
    stem = "stdin" if program == "-" else Path(program).name.removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9_.-]", "_", stem).lstrip(".-") or "run"


def _unwritable(folder: Path, error: OSError) -> GobrrrError:
    return GobrrrError(f"cannot write into {folder}: {error.strerror}", "name a folder that can be written with -o DIR")
