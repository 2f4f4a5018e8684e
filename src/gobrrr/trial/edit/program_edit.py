"""An edit of the program: its files, variables and words; put on an arm's copy of the folder, never the user's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from gobrrr.errors import GobrrrError
from gobrrr.system import files
from gobrrr.system.escape import plain
from gobrrr.trial.sandbox.workspace import LEFT_OUT

MOST_FILES, MOST_BYTES = 2_000, 256 << 20
"""Files and bytes of an edit (proposed: the largest honest edit of the fields' programs would settle it)."""
LONGEST_NAME = 255  # bytes, of most file systems
_SCRIPT = 0o777
"""Mode of a new file that names its interpreter, less the umask: the program may start it."""


@dataclass(frozen=True)
class ProgramEdit:
    """An edit, as it is read from a patch, a folder, a commit or a setting. Raises GobrrrError where it is too large or
    reaches out of the program's folder."""

    name: str
    """Shown to people."""
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    """New content by path relative to the program's folder; None: the file goes."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for the arm."""
    args: tuple[str, ...] | None = None
    """Words behind the script instead of the program's own; None: as they are."""
    diff: str = ""
    """The change for people, bounded in size."""

    def __post_init__(self) -> None:
        for path in self.files:
            check_path(self.name, path)
        size = sum(len(data or b"") for data in self.files.values())
        check_size(self.name, len(self.files), size)

    def command(self, plain: Sequence[str]) -> list[str]:
        """The program's command with the edit's words behind its script or module. Raises GobrrrError where there are
        such words, and it names neither."""
        if self.args is None:
            return list(plain)
        begin = own_words(plain)
        if begin is None:
            raise GobrrrError("--args needs a script or a module, and this command names neither", "name train.py")
        return [*plain[:begin], *self.args]

    def put_on(self, mirror: Path) -> None:
        """Write into an arm's copy of the program's folder, in which links lead to the user's own: a link in the way is
        replaced, never followed. Raises OSError."""
        for name, data in sorted(
            self.files.items(), key=lambda item: item[1] is not None
        ):  # a file may become a folder
            place = mirror / name
            if data is None:
                _remove(place, mirror)
                continue
            _own_way(place, mirror)
            mode = _SCRIPT if data.startswith(b"#!") else files.AS_USUAL
            if place.is_file():
                mode = stat.S_IMODE(place.stat().st_mode)
            elif place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)  # the copy's own, and no link in it is followed
            files.write(place, data, mode)


def own_words(command: Sequence[str]) -> int | None:
    """Return where the words behind a command's script or module begin; None where it names neither."""
    behind = [n + (word == "-m") for n, word in enumerate(command) if word == "-m" or word.endswith(".py")]
    return min(behind) + 1 if behind else None


def check_path(edit: str, path: str) -> None:
    """Raises GobrrrError for a path of an edit that is not, in any computer's eyes, one of a file in the folder."""
    check_name(edit, path)
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or ("\\" in path and os.sep == "\\") or Path(path).is_absolute():
        raise GobrrrError(
            f"{edit} touches {plain(path)}, outside the program's folder", "start it in the folder that holds all of it"
        )
    if left := LEFT_OUT.intersection((*parts, *(".git" for part in parts if part.lower() == ".git"))):
        raise GobrrrError(f"{edit} touches {plain(path)}: no {min(left)} is in the copy that a trial runs in")


def check_name(edit: str, path: str) -> None:
    """Raises GobrrrError for a path that no file can have."""
    parts = PurePosixPath(path).parts
    if "\0" in path or not parts or any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        raise GobrrrError(f"{edit} has a file name that no file can have: {plain(path)}")


def check_size(edit: str, count: int, size: int) -> None:
    """Raises GobrrrError for an edit of too many files or bytes."""
    if count > MOST_FILES or size > MOST_BYTES:
        raise GobrrrError(
            f"{edit} changes {count:,} files, {size >> 20:,} MiB: at most {MOST_FILES:,} and {MOST_BYTES >> 20} MiB",
            "leave out what the program does not need",
        )


def _own_way(place: Path, mirror: Path) -> None:
    """Folders that lead to a place, as the mirror's own: a link to a folder becomes one with links to all in it."""
    for folder in reversed(place.relative_to(mirror).parents[:-1]):
        way = mirror / folder
        if way.is_symlink():
            target, entries = way.resolve(), os.listdir(way) if way.is_dir() else []  # noqa: PTH208  (names alone)
            way.unlink()
            way.mkdir()
            for entry in entries:
                (way / entry).symlink_to(target / entry)
        elif not way.is_dir():
            way.unlink(missing_ok=True)
            way.mkdir()


def _remove(place: Path, mirror: Path) -> None:
    """Remove a file, and the folders that this leaves empty, as Git does: Python would import such a folder."""
    if not os.path.lexists(place):
        return
    _own_way(place, mirror)
    place.unlink()
    with contextlib.suppress(OSError):
        for folder in place.relative_to(mirror).parents[:-1]:
            (mirror / folder).rmdir()
