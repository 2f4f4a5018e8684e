"""How are the profiler's own log lines kept off the program's stderr, and nothing else with them?"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

# What Kineto's logger writes: "USDT:2026-11-21 01:15:32 26489:26489 SyncActivityProfilerHandler.cpp:52] profiler_start"
# and where the first profile of a process is made in another thread than the one that imported torch.
_CHATTER = re.compile(
    rb"^(?:\[W\d{4} [\d:.]+ profiler_kineto\.cpp:\d+\]"  # and torch's own, where a profile was short
    rb"|[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.\w+:\d+\]|ERROR: External init callback).*\n?",
    re.MULTILINE,
)
_inherited: dict[int, int] = {}
"""Files that children have as their stderr for good, and how far each was read: another thread started them while it
was held back."""


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold stderr back for a moment, and let all but the profiler's own log lines through afterwards.

    Its log level would do too, but is read once per process: the program's own profiler would fall silent with ours.
    """
    try:
        stderr, held = os.dup(2), os.memfd_create("gobrrr-stderr")
    except (AttributeError, OSError):  # not Linux, or no stderr at all
        yield
        return
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        _inherited[held] = 0
        try:
            let_through()
        except BaseException:
            if _inherited.pop(held, None) is not None:
                os.close(held)
            raise


def let_through() -> None:
    """Write out what was written since the last look. The last words of children that outlive the program are lost."""
    heirs = _heirs()
    for held in list(_inherited):
        with contextlib.suppress(OSError):
            text = _read(held, _inherited[held])
            _inherited[held] += len(text)
            rest = memoryview(_CHATTER.sub(b"", text))
            while rest:
                rest = rest[os.write(2, rest) :]
        if os.fstat(held).st_ino not in heirs:
            _inherited.pop(held)
            os.close(held)


def _read(held: int, begin: int) -> bytes:
    """To the end, without moving the place at which others write."""
    parts = []
    while part := os.pread(held, 1 << 16, begin):
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


def _heirs() -> set[int]:
    """Inodes of what the children have as their stderr."""
    found = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {_stderr_of(pid) for pid in file.read_text().split()}
    return found


def _stderr_of(pid: str) -> int:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/fd/2").stat().st_ino
    return 0
