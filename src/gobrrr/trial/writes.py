"""Keeps an arm from writing into the user's files: links are copied before they are written to, the rest is refused.

Python's own audit events tell of every file that is opened, renamed or removed, before it happens. torch.save opens
its files in C++ and is told of through its one opener. Libraries that open files in C by themselves are not seen; their
large files are links, which is what can be done.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

REFUSED = "refused"
"""File of an arm's folder: paths that it was kept from, one a line."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC | os.O_CREAT
_CONTENT = {"os.truncate": (0,), "os.chmod": (0,)}
_ENTRIES = {"os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,), "shutil.rmtree": (0,),
            "os.link": (1,), "os.symlink": (1,)}  # fmt: skip
"""Events that change a file's content, or a folder's entries, and which of their arguments name them."""


class KeptOut(PermissionError):
    """What the program sees where it would write into the user's files."""


def keep_out(source: str, own: str) -> None:
    """From now on, and for good: nothing below `source` is written to but below `own`, where REFUSED names what was."""
    user, mine = os.path.realpath(source) + os.sep, os.path.realpath(own) + os.sep

    def check(path: Any, content: bool = True) -> None:
        if isinstance(path, int) or path is None:
            return
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        parent, last = os.path.split(name)
        real = os.path.join(os.path.realpath(parent), last)  # noqa: PTH118
        if (real + os.sep).startswith(mine):
            if content:
                _copied_if_linked(real)
        elif (real + os.sep).startswith(user) and not _is_scratch(real):
            with Path(own, REFUSED).open("a") as file:
                file.write(real + "\n")
            raise KeptOut(f"gobrrr keeps this trial from writing to {real}")

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            if (isinstance(flags, int) and flags & _WRITES) or (isinstance(mode, str) and set(mode) & set("wax+")):
                check(path)
        elif event in _CONTENT or event in _ENTRIES:
            for at in _CONTENT.get(event) or _ENTRIES[event]:
                if event != "os.mkdir" or not Path(args[at]).exists():  # makedirs(exist_ok=True) asks for what is there
                    check(args[at], event in _CONTENT)

    sys.addaudithook(heard)


def _is_scratch(real: str) -> bool:
    """Caches of bytecode, and new files in the system's folder for temporary ones, where the user works above it."""
    temporary = os.path.realpath(tempfile.gettempdir()) + os.sep
    return "__pycache__" in real or (real.startswith(temporary) and not Path(real).exists())


def _copied_if_linked(name: str) -> None:
    """Writing through a link would reach the user's file."""
    path = Path(name)
    if path.is_symlink() and path.is_file():
        target = path.resolve()
        path.unlink()
        shutil.copy2(target, path)


def tell_of_torch_save() -> None:
    """torch.save's files are opened in C++: let it say so as Python would."""
    from torch import serialization

    opener: Any = serialization._open_zipfile_writer

    def told(name_or_buffer: Any) -> Any:
        if isinstance(name_or_buffer, (str, os.PathLike)):
            sys.audit("open", os.fspath(name_or_buffer), "wb", os.O_WRONLY)
        return opener(name_or_buffer)

    serialization._open_zipfile_writer = told
