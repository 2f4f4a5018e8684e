"""Watch what a program does beside computing: files it writes, lines it prints. A remedy must not make them stop."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.guard.model.account import NUMBER

# Flags of open(2) with which a file may change.
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC | os.O_CREAT
MOST_TEXT, MOST_SHAPES = 4 << 20, 1000
"""Characters of stdout that are looked at, and kinds of lines in them."""
MOST_FILES = 256  # files whose sizes are asked for at each look; proposed: some us each; programs that write more
MOST_ENTRIES = 100_000
"""Tensors and values of a saved object; proposed: more than models have; a larger model would settle it."""
_heard: list[Any] = []
_registered = False


class FileWrites:
    """Counts files below the working directory that are opened for writing or renamed, between `start` and `stop`."""

    def __init__(self) -> None:
        self.num = 0
        self.names: set[str] = set()
        """The different ones."""
        self.saved: list[str] = []
        """Digests of what torch.save was given: names, shapes and dtypes."""
        self._below = ""
        self._untell: Callable[[], None] = bool  # type: ignore[assignment]

    def start(self) -> None:
        """Audit hooks can't be taken out: one hook of ours serves all, and does nothing while none listens."""
        global _registered
        self._below = os.path.join(os.path.realpath(os.getcwd()), "")  # noqa: PTH109, PTH118  (hot path: str)
        self._untell = tell_of_torch_save()
        _heard.append(self)
        if not _registered:
            _registered = True
            sys.addaudithook(_hear)

    def stop(self) -> None:
        """Safe to call twice."""
        if self in _heard:
            _heard.remove(self)
            self._untell()

    def note(self, path: Any) -> None:
        if isinstance(path, (str, bytes)):
            name = os.path.realpath(os.fsdecode(path))
            if name.startswith(self._below) and "__pycache__" not in name:
                self.num += 1
                self.names.add(name)

    def written(self) -> int:
        """Bytes that these files hold now, of MOST_FILES at most."""
        size = 0
        for name in itertools.islice(self.names, MOST_FILES):
            with contextlib.suppress(OSError):
                size += os.stat(name).st_size  # noqa: PTH116  (hot path: str)
        return size


def tell_of_torch_save() -> Callable[[], None]:
    """torch.save's files are opened in C++: let it say so as Python would, and what they hold, until what this gives is
    called."""
    from torch import serialization

    opener: Any = serialization._open_zipfile_writer
    save: Any = serialization._save
    if getattr(opener, "tells", False):
        return lambda: None

    def told(name_or_buffer: Any) -> Any:
        if isinstance(name_or_buffer, (str, os.PathLike)):
            sys.audit("open", os.fspath(name_or_buffer), "wb", os.O_WRONLY)
        return opener(name_or_buffer)

    def saves(obj: Any, *rest: Any, **more: Any) -> Any:
        for each in _heard:
            each.saved.append(structure(obj))
        return save(obj, *rest, **more)

    def untell() -> None:
        serialization._open_zipfile_writer, serialization._save = opener, save

    told.tells = True  # type: ignore[attr-defined]
    serialization._open_zipfile_writer, serialization._save = told, saves
    return untell


def structure(obj: Any) -> str:
    """Digest of the names, shapes and dtypes in nested dicts and lists of tensors, whatever their order and values."""

    entries = sorted(itertools.islice(_entries(obj, ""), MOST_ENTRIES))
    return hashlib.sha256("\n".join(entries).encode("utf-8", "backslashreplace")).hexdigest()


def _entries(obj: Any, path: str, depth: int = 0) -> Iterator[str]:
    from torch import Tensor

    if isinstance(obj, Tensor):
        yield f"{path}: {obj.dtype} {tuple(obj.shape)}"
    elif isinstance(obj, dict) and depth < 20:
        for key, value in dict.items(obj):
            yield from _entries(value, f"{path}.{key}" if type(key) in (str, int) else path, depth + 1)
    elif isinstance(obj, (list, tuple)) and depth < 20:
        each = list.__iter__(obj) if isinstance(obj, list) else tuple.__iter__(obj)
        for number, value in enumerate(each):
            yield from _entries(value, f"{path}[{number}]", depth + 1)
    else:
        yield f"{path}: {type(obj).__name__}"


def opens_for_writing(mode: Any, flags: Any) -> bool:
    """Whether the audit event of an `open` with these says that the file may be changed."""
    return bool(isinstance(flags, int) and flags & _WRITES) or bool(isinstance(mode, str) and set(mode) & set("wax+"))


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if not _heard or event not in ("open", "os.rename"):
        return
    if event == "open":
        path, mode, flags = args
        writes = opens_for_writing(mode, flags)
    else:
        path, writes = args[1], True
    if writes:
        for each in _heard:
            each.note(path)


def printed(text: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Lines by what stays of them without their numbers, and the numbers of each of those lines."""
    seen: dict[str, list[tuple[str, ...]]] = {}
    for line in text[:MOST_TEXT].splitlines():
        rows = seen.setdefault(NUMBER.sub("#", line)[:200], []) if len(seen) < MOST_SHAPES else []
        rows.append(tuple(NUMBER.findall(line)))
    return {shape: tuple(rows) for shape, rows in seen.items()}
