"""Descriptors that this process holds inside a program that may close any of them, and open files of its own there.

Every daemon closes all it does not know. The number then stands for another file, and what is written to it lands in
the program's. So a descriptor of ours lies high, is not handed on, and is asked who it is before it is used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""How a file that is not there yet is made."""
HIGH = 1 << 12
"""Numbers from here on, where the limit allows: the program's own files get those of a plain run."""


class Held:
    """A descriptor, and the file that it stood for when it was opened."""

    def __init__(self, fd: int) -> None:
        """Takes over `fd`, which may get another number."""
        self._fd = fd
        try:
            self._fd = _raised(fd)
            self._file = _file(self._fd)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def fd(self) -> int:
        """The number; -1 where it is closed, or stands for another file by now."""
        if self._fd >= 0 and _file(self._fd) != self._file:
            self._fd = -1
        return self._fd

    def close(self) -> None:
        """Close it if it is still ours. Safe to call twice."""
        fd, self._fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _file(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _raised(fd: int) -> int:
    """The same file under a high number, closed when another program is executed; `fd` itself where there is none."""
    if sys.platform == "win32":
        return fd
    import fcntl  # torch has imported it; resource it has not, and the program could tell

    try:
        limit = os.sysconf("SC_OPEN_MAX")
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH if limit < 0 else min(HIGH, max(limit - 64, limit // 2)))
    except (OSError, ValueError, OverflowError):
        return fd
    os.close(fd)
    return high


@contextlib.contextmanager
def no_size_signal() -> Iterator[None]:
    """Write files without SIGXFSZ, which a file beyond the process's limit costs and the program may not ignore: the
    write fails, and that is all."""
    if not hasattr(signal, "sigtimedwait"):  # macOS
        yield
        return
    limit = {signal.SIGXFSZ}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, limit)
    pending = signal.sigpending() & limit
    try:
        yield
    finally:
        if not pending and signal.sigpending() & limit:
            signal.sigtimedwait(limit, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def files_are_limited() -> bool:
    """Whether this process may write no file beyond some size (ulimit -f): Kineto writes its trace in a thread of its
    own, which the signal would end the program from."""
    try:
        with open("/proc/self/limits", "rb") as file:  # noqa: PTH123
            return any(line.split()[3] != b"unlimited" for line in file if line.startswith(b"Max file size"))
    except (OSError, IndexError):  # not Linux
        return False
