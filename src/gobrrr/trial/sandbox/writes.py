"""Writes of an arm that Python itself tells of: links are copied before they are written to, writes outside refused.

Python's audit events tell of every file that is opened, renamed or removed, before it happens, and name it: so a
refusal has a path and a reason. The kernel (landlock.py) is what nobody gets round; where it cannot be had, other
programs and databases are refused as a whole, since nothing tells what they write to.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from gobrrr.capture.process.config import Config
from gobrrr.guard.watch.effects import opens_for_writing
from gobrrr.trial.sandbox.workspace import MOST_COPIED_BYTES, WORK, mirror_of

FIRST = "gobrrr.trial.sandbox.writes:keep_out"
"""Name of `keep_out` in a Config."""
WRITABLE, PROTECTION = "writable", "protection"
"""Files of an arm's folder: the paths that it may write below, with NUL between them, and who keeps it from others."""
PYTHON, UNPROTECTED = "Python's own calls", "unprotected"
"""Protection where the kernel gives none; and the user's choice with `--unprotected`."""
REFUSED = "refused"
"""File of an arm's folder: paths that it was kept from, one a line."""
SHARED_MEMORY = "/dev/shm"
_CHANGES = {
    "os.truncate": ((0, None, True),), "os.chmod": ((0, 2, True),), "os.chown": ((0, 3, True),),
    "os.utime": ((0, 3, True),), "os.setxattr": ((0, None, True),), "os.removexattr": ((0, None, True),),
    "os.link": ((0, 2, True), (1, 3, False)), "os.symlink": ((1, 2, False),), "os.mkdir": ((0, 2, False),),
    "os.rename": ((0, 2, False), (1, 3, False)), "os.remove": ((0, 1, False),), "os.rmdir": ((0, 1, False),),
    "shutil.rmtree": ((0, None, False),),
}  # fmt: skip
"""Events, and for each path among their arguments: which one it is, which one has the descriptor of the folder that it
is named from, and whether the file itself changes, or only the folder's entry."""
_PROGRAMS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pty.spawn"))
_TOOLS = ("torch._inductor", "torch.utils.cpp_extension", "triton", "platform", "ctypes.util", "sysconfig")
"""Modules that start compilers and linkers, or ask what machine it is: nothing of the user's is written to."""


class KeptOut(PermissionError):
    """Error that the program sees where it would write to what is not its own."""


def keep_out(config: Config) -> None:
    """From now on, and for good: nothing is written to but what WRITABLE in `config.folder` names; REFUSED there tells
    of it.

    `config.source` is the user's working folder: all that is refused where the user wants no protection.
    """
    assert config.source is not None
    sys.addaudithook(_Hook(config.source, config.folder).heard)


class _Hook:
    def __init__(self, source: str, own: str) -> None:
        self._own, self._user = os.path.realpath(own), os.path.realpath(source)
        self._protection = _text(Path(own, PROTECTION)) or PYTHON
        self._around = os.path.join(self._own, WORK)  # noqa: PTH118
        self._mirror = str(mirror_of(Path(self._user), Path(self._around)))
        self._writable = (self._own, *_text(Path(own, WRITABLE)).split("\0"))

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event: raises KeptOut where it must not happen."""
        if event == "open":
            path, mode, flags = args
            if opens_for_writing(mode, flags):
                self._check(path)
        elif event in _CHANGES:
            for at, folder, content in _CHANGES[event]:
                if event != "os.mkdir" or not Path(args[at]).exists():  # makedirs(exist_ok=True) asks for what is there
                    self._check(args[at], -1 if folder is None else args[folder], content)
        elif event == "sqlite3.connect":
            self._database(args[0])
        elif event in _PROGRAMS and self._protection == PYTHON and not _is_a_tools():
            self._refuse(f"another program, {_first_word(args[0])}")

    def _check(self, path: Any, folder: Any = -1, content: bool = True) -> None:
        if path is None or (isinstance(path, int) and _is_nameless(path)):
            return
        real, beside = _real(path, folder), self._is_beside(path)
        if content:
            if _below(real, self._own) and not (beside and self._is_free(os.path.realpath(real), beside)):
                _copied_if_linked(real)
            real = os.path.realpath(real)
        if not self._is_free(real, beside):
            self._refuse(real)

    def _is_beside(self, path: Any) -> bool:
        """Whether it goes by a link to what lies beside the user's folder: a way that only a mirror has."""
        if isinstance(path, int):
            return False
        name = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))  # noqa: PTH109, PTH118
        return _below(name, self._around) and not _below(name, self._mirror)

    def _is_free(self, real: str, beside: bool = False) -> bool:
        """`beside`: named by a link of the mirror's, so that nobody has chosen where it leads to."""
        places = [place for place in self._writable if place and not (beside and _below(SHARED_MEMORY, place))]
        if "__pycache__" in real or any(_below(real, place) for place in places):
            return True
        return self._protection == UNPROTECTED and not beside and not _below(real, self._user)

    def _database(self, name: Any) -> None:
        """SQLite opens its files in C, and tells only that it does: a link that is not too large is copied."""
        name = os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else ""
        if not name or name == ":memory:" or name.startswith("file:"):
            return
        real = _real(name)
        if _below(real, self._own):
            _copied_if_linked(real, MOST_COPIED_BYTES)
        elif self._protection == PYTHON and not self._is_free(os.path.realpath(real)):
            self._refuse(real)

    def _refuse(self, what: str) -> None:
        with open(os.path.join(self._own, REFUSED), "a") as file:  # noqa: PTH118, PTH123
            file.write(what + "\n")
        raise KeptOut(errno.EACCES, "gobrrr keeps this trial from writing outside its own folder", what)


def _text(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())
    except OSError:
        return ""


def _below(real: str, place: str) -> bool:
    return real == place or real.startswith(place.rstrip("/") + "/")


def _real(path: Any, folder: Any = -1) -> str:
    """Where an entry really lies; the entry itself may be a link. `folder`: a descriptor that it is named from."""
    if isinstance(path, int):
        return os.path.realpath(f"/proc/self/fd/{path}")
    name = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0:
        name = os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), name)  # noqa: PTH118
    parent, last = os.path.split(os.path.join(os.getcwd(), name).rstrip("/"))  # noqa: PTH109, PTH118
    if last in ("", ".", ".."):
        return os.path.realpath(name)
    return os.path.join(os.path.realpath(parent), last)  # noqa: PTH118


def _copied_if_linked(name: str, most: float = float("inf")) -> None:
    """Writing through a link would reach the user's file."""
    path = Path(name)
    if path.is_symlink() and path.is_file() and path.stat().st_size <= most:
        target = path.resolve()
        path.unlink()
        shutil.copy2(target, path)


def _is_nameless(descriptor: int) -> bool:
    """Memory, pipes, and files that were removed since they were opened."""
    try:
        name = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    except OSError:
        return True
    return not name.startswith("/") or name.endswith(" (deleted)")


def _is_a_tools() -> bool:
    """Whether a compiler of PyTorch's is at work, or the standard library asks the machine."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if any(name == tool or name.startswith(tool + ".") for tool in _TOOLS):
            return True
        frame = frame.f_back
    return False


def _first_word(command: Any) -> str:
    return os.fsdecode(command).split(" ")[0] if isinstance(command, (str, bytes, os.PathLike)) else str(command)
