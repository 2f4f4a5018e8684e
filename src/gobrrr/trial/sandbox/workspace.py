"""A working directory of an arm's own: looks like the user's, and whatever is written into it stays in it.

Folders are made anew, small files copied, large ones linked; links that lead from one to another lead to these. What
the arm opens for writing through a link is copied first (`writes.py`), and what it would write elsewhere is refused
(`limits.py`). Folders of other file systems (/proc, a share) are links: what lies there is not the program's folder,
and may have no end.

The mirror has the name of the user's folder and stands in folders named as those above it, with links to all that lies
beside it: `../data` leads to the user's data. What is made there stays there as well.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path

from gobrrr.errors import GobrrrError
from gobrrr.system import files

SMALL_BYTES, MOST_COPIED_BYTES = 1 << 20, 128 << 20
"""Files up to the first are copied, until the second is spent; the rest are links."""
MOST_ENTRIES = 20_000
"""Entries that are mirrored one by one; a folder beyond that becomes one link, and is read-only to the arm."""
LEVELS = 3
"""Folders above the user's that the mirror has too: so often a path may lead upward."""
MOST_LISTED, MOST_BESIDE = 4_000, 200
"""Entries of each of them that are looked at, and linked: folders first, for that is where data lies."""
WORK = "work"
"""Folder of the Workspace in an arm's folder."""
OUTPUT_MARK = ".gobrrr-output"
LEFT_OUT = frozenset((".git", ".hg", ".gobrrr", ".venv", "venv", "node_modules", "__pycache__"))
PSEUDO = ("/proc", "/sys")
"""Below these lie the kernel's answers, no files."""


class Workspace:
    """Mirrors `source` below `folder`, at `mirror_of` them. `source` itself is never written to."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder = source.resolve(), folder.resolve()
        self.mirror = mirror_of(self.source, self.folder)
        self._device = self.source.stat().st_dev
        self._entries = 0
        self._copied = 0
        self._links: list[tuple[Path, Path, Path]] = []

    def make(self) -> Path:
        """The mirrored folder, made. Raises OSError where there is no room."""
        self.folder.mkdir(parents=True)
        self.mirror.mkdir(parents=True, exist_ok=True)
        waiting = [(self.source, self.mirror)]
        while waiting:
            source, target = waiting.pop(0)
            waiting += self._mirror(source, target)
        self._surround()
        for place, user, own in self._links:
            place.symlink_to(own if own.exists() else user)
        return self.mirror

    def _surround(self) -> None:
        """Links to what lies beside the user's folder, and beside those above it. Nothing of it is opened or followed:
        it may be a share that does not answer."""
        waiting = list(zip(self.source.parents, self.mirror.parents, strict=False))[:LEVELS]
        ways = _ways(self.source), _ways(self.folder)
        while waiting:
            source, target = waiting.pop(0)
            for entry in _listed(source):  # by their names, as strings: there may be hundreds
                place = f"{target}/{entry.name}"
                if entry.name in LEFT_OUT or entry.path in ways[0] or entry.path == str(self.folder):
                    continue
                if entry.path in ways[1]:  # a link would lead round: in it lies the mirror with that link
                    if not _is_output(entry):
                        os.mkdir(place)  # noqa: PTH102
                        waiting.append((Path(entry.path), Path(place)))
                elif entry.is_symlink() and (own := self._led_back(Path(entry.path))) is not None:
                    self._links.append((Path(place), Path(entry.path), own))
                else:
                    os.symlink(entry.path, place)  # noqa: PTH211

    def _led_back(self, link: Path) -> Path | None:
        """Where the mirror has what a link beside the user's folder leads to, when that lies in it."""
        with contextlib.suppress(ValueError, OSError):
            led = os.path.normpath(link.parent / os.readlink(link))  # noqa: PTH115
            return self.mirror / Path(led).relative_to(self.source)
        return None

    def _mirror(self, source: Path, target: Path) -> list[tuple[Path, Path]]:
        """One folder's entries; gives its folders, which come later: those near the top matter most."""
        found = []
        with contextlib.suppress(PermissionError), os.scandir(source) as entries:
            for entry in entries:
                self._entries += 1
                if entry.name in LEFT_OUT or Path(entry.path) == self.folder or _is_output(entry):
                    continue
                place = target / entry.name
                if entry.is_symlink() and (own := self._counterpart(entry)) is not None:
                    self._links.append((place, Path(entry.path), own))
                elif entry.is_dir(follow_symlinks=False) and self._is_entered(entry):
                    place.mkdir()
                    found.append((Path(entry.path), place))
                elif not entry.is_file(follow_symlinks=False) or not self._is_copied(entry, place):
                    place.symlink_to(entry.path)
        return found

    def _counterpart(self, entry: os.DirEntry[str]) -> Path | None:
        """Where the mirror has, once it is whole, what a link inside of the user's folder leads to."""
        try:
            return self.mirror / Path(entry.path).resolve().relative_to(self.source)
        except (ValueError, OSError, RuntimeError):  # elsewhere, or round and round
            return None

    def _is_entered(self, entry: os.DirEntry[str]) -> bool:
        return self._entries < MOST_ENTRIES and entry.stat(follow_symlinks=False).st_dev == self._device

    def _is_copied(self, entry: os.DirEntry[str], place: Path) -> bool:
        """Copy a file, if it is small and can be read: at most as many bytes as it says that it has."""
        size = entry.stat(follow_symlinks=False).st_size
        if size > SMALL_BYTES or self._copied + size > MOST_COPIED_BYTES:
            return False
        try:
            with files.opened(Path(entry.path), follow=False) as file:
                data = file.read(size)
        except OSError:
            return False
        place.write_bytes(data)
        shutil.copystat(entry.path, place)
        self._copied += size
        return True


def mirror_of(source: Path, folder: Path) -> Path:
    """Where the mirror of the user's folder lies in the folder of a Workspace; both resolved."""
    return folder / source.relative_to(_top(source))


def as_theirs(text: str, source: Path, folder: Path) -> str:
    """A text of an arm's with the user's own paths in place of those in the folder of a Workspace."""
    top = str(_top(source.resolve()))
    return text.replace(f"{folder.resolve()}/", top.rstrip("/") + "/").replace(str(folder.resolve()), top)


def _top(source: Path) -> Path:
    """Return the folder that a Workspace's folder stands for: the last of the folders above that it has."""
    return [source, *source.parents][: LEVELS + 1][-1]


def _ways(folder: Path) -> frozenset[str]:
    """The folder and all those above it."""
    return frozenset(map(str, (folder, *folder.parents)))


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """A bounded number of a folder's entries; none where it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        found = list(itertools.islice(entries, MOST_LISTED))
        return sorted(found, key=lambda entry: entry.is_file(follow_symlinks=False))[:MOST_BESIDE]
    return []


def check(source: Path) -> None:
    """Raises GobrrrError for a folder of which no copy can be made: all of the computer, or what is no folder of files.
    By any name: /proc/self/root is / as well."""
    real = source.resolve()
    if source.samefile("/") or any(real.is_relative_to(place) for place in PSEUDO):
        raise GobrrrError(
            f"trials run in a copy of the working directory, and none is made of {real}",
            "start it in the program's own folder",
        )


def mark_output(folder: Path) -> None:
    """Keep a folder of results, with the arms' own folders in it, out of all mirrors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OUTPUT_MARK).touch()


def _is_output(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and (Path(entry.path) / OUTPUT_MARK).exists()


def inside(word: str, source: Path, folder: Path) -> str:
    """A word of the command line as the arm must have it: a path into the user's folder becomes its own, and a relative
    one that leads out of it absolute, for the arm's copy lies elsewhere. The path of --name=path too."""
    if word.startswith("-") and "=" in word:
        name, _, value = word.partition("=")
        return f"{name}={inside(value, source, folder)}"
    path = Path(source, word)
    leaves = not word.startswith("/") and os.path.normpath(word).split("/")[0] == ".."
    if not (word.startswith("/") or leaves) or not os.path.exists(path):  # noqa: PTH110  (any word: code, say)
        return word
    with contextlib.suppress(ValueError):
        moved = folder / path.resolve().relative_to(source.resolve())
        if moved.exists():
            return str(moved)
    return os.path.normpath(path) if leaves else word
