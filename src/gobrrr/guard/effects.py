"""What a program does beside computing: files it writes, lines it prints. A remedy must not make them stop."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC | os.O_CREAT
MOST_TEXT, MOST_SHAPES = 4 << 20, 1000
_heard: list[Any] = []
_registered = False


class FileWrites:
    """Counts files below the working directory that are opened for writing or renamed, between `start` and `stop`."""

    def __init__(self) -> None:
        self.num = 0
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
            self.num += name.startswith(self._below) and "__pycache__" not in name


def tell_of_torch_save() -> Callable[[], None]:
    """torch.save's files are opened in C++: let it say so as Python would, until what this gives is called."""
    from torch import serialization

    opener: Any = serialization._open_zipfile_writer
    if getattr(opener, "tells", False):
        return lambda: None

    def told(name_or_buffer: Any) -> Any:
        if isinstance(name_or_buffer, (str, os.PathLike)):
            sys.audit("open", os.fspath(name_or_buffer), "wb", os.O_WRONLY)
        return opener(name_or_buffer)

    told.tells = True  # type: ignore[attr-defined]
    serialization._open_zipfile_writer = told
    return lambda: setattr(serialization, "_open_zipfile_writer", opener)


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
        rows = seen.setdefault(_NUMBER.sub("#", line)[:200], []) if len(seen) < MOST_SHAPES else []
        rows.append(tuple(_NUMBER.findall(line)))
    return {shape: tuple(rows) for shape, rows in seen.items()}
