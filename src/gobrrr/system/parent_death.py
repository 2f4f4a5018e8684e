"""A process that must not outlive the one that started it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC: ctypes.CDLL | None = None
if sys.platform == "linux":
    with contextlib.suppress(OSError):
        _LIBC = ctypes.CDLL(None)


def die_with_the_parent(parent: int | None = None, starter: int = 0) -> None:
    """From now on the kernel kills this process when its parent ends, however that ends; on Linux only.

    `parent` is the parent's process id where it was known before the fork; `starter` that of who started it all, maybe
    through a shell: where it is already gone nobody waits for this process. The kernel watches the parent's *thread*
    that started this process; it keeps the wish over execve, and drops it for forked children and setuid programs.
    """
    if _LIBC is None:
        return
    parent = os.getppid() if parent is None else parent
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent or (starter and is_gone(starter)):  # it ended before the wish was made
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans(yes: bool) -> None:
    """Say whether this process becomes the parent of what its children leave behind, instead of init; on Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def is_gone(process: int) -> bool:
    """Say whether there is no process of that number, anybody's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # there, and another user's
        return False
    return False
