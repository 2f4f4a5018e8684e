"""Files on a computer that is shared: read only where they are plain files, written whole and for their owner alone.

What somebody else may have laid at a name (a link, a pipe, a device, a file without end) is neither followed, waited
for nor written into.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

PRIVATE, AS_USUAL = 0o600, 0o666
"""Modes: the owner's alone, and what the user's umask leaves, for files that the user has named."""
_OURS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # no child gets the file; bytes stay as they are
_OWN = (os.getuid(), 0) if hasattr(os, "getuid") else (0,)
_NOFOLLOW, _NONBLOCK = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


def opened(path: Path, *, follow: bool = True) -> BinaryIO:
    """A plain file, open for reading. Raises OSError, for a folder, a pipe and a device too, without waiting."""
    handle = os.open(path, os.O_RDONLY | _OURS | _NONBLOCK | (0 if follow else _NOFOLLOW))
    if stat.S_ISREG(mode := os.fstat(handle).st_mode) and not _waits(handle):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no plain file", str(path))


def _waits(handle: int) -> bool:
    """The kernel's log is called a plain file as well, and has no end."""
    with contextlib.suppress(OSError, AttributeError):  # reading says what is wrong; Windows has no pread
        try:
            os.pread(handle, 1, 0)
        except BlockingIOError:
            return True
    return False


def read(path: Path, most: int) -> bytes:
    """The bytes of a plain file; of one that is larger than `most`, one byte more than that. Raises OSError."""
    with opened(path) as file:
        return file.read(most + 1)


def write(path: Path, data: bytes | Iterable[bytes], mode: int = PRIVATE) -> None:
    """Whole or not at all, by way of a new file beside it; a link at `path` is replaced. `data` may come in pieces.
    Raises OSError."""
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OURS | _NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def put(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Into the file that the user has named: whole or not at all where it is or becomes a plain file; a pipe or a
    device is written into, a link followed that is the user's or the computer's own. Raises OSError."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
    else:
        write(path.resolve() if path.is_symlink() and path.lstat().st_uid in _OWN else path, data, AS_USUAL)


def append(path: Path, data: bytes) -> None:
    """To a file of ours, made where it is not there. Raises OSError, for a link and for what is no plain file too."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _OURS | _NOFOLLOW | _NONBLOCK, PRIVATE)
    with os.fdopen(handle, "ab") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        file.write(data)


def check_owner(facts: os.stat_result, path: Path, private: bool = False) -> None:
    """Raises PermissionError where another user may have made or changed it; `private`: or may have read it."""
    if not hasattr(os, "getuid"):  # Windows: a user's folders are not open to others
        return
    if facts.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others may write into it: chmod go-w", str(path))
    if private and facts.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise PermissionError(errno.EPERM, "others may read it", str(path))


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """$GOBRRR_CACHE, or gobrrr/ in $XDG_CACHE_HOME or ~/.cache: what was found out about this computer."""
    if environ.get("GOBRRR_CACHE"):
        return Path(environ["GOBRRR_CACHE"])
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()) / "gobrrr"


def read_own(path: Path, most: int, private: bool = False) -> bytes:
    """At most `most` + 1 bytes, where nobody else can have written them. Raises FileNotFoundError, and OSError for
    a link and for what others may write, or where it is `private` read."""
    if path.parent.exists():
        _check_folder(path.parent)
    with opened(path, follow=False) as file:
        check_owner(os.fstat(file.fileno()), path, private)
        return file.read(most + 1)


def write_own(path: Path, data: bytes) -> None:
    """Whole, 0600, in a folder that is made 0700. Raises OSError, also for a folder that others may write into."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(path.parent)
    write(path, data)


def _check_folder(folder: Path) -> None:
    """The folder, and the link that leads to it where it is one: people move their caches to larger disks."""
    facts = folder.lstat()
    if folder.is_symlink() and hasattr(os, "getuid") and facts.st_uid != os.getuid():
        raise PermissionError(1, "it is a link that another user has made", str(folder))
    check_owner(folder.stat(), folder)
