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
NAME = "gobrrr-stderr"
_inherited: dict[int, int] = {}
"""Files that children have as their stderr for good, and how far each was read: another thread started them while it
was held back."""


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold stderr back for a moment, and let all but the profiler's own log lines through afterwards.

    Its log level would do too, but is read once per process: the program's own profiler would fall silent with ours.
    """
    try:
        stderr, held = os.dup(2), os.memfd_create(NAME)
    except (AttributeError, OSError):  # not Linux, or no stderr at all
        yield
        return
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        _inherited[held], stays = 0, False
        try:
            let_through()
            stays = _has_heirs()
        finally:
            if not stays:
                _inherited.pop(held)
                os.close(held)


def let_through() -> None:
    """What was written since the last look. Of children that outlive the program the last words are lost."""
    for held, begin in _inherited.items():
        with contextlib.suppress(OSError):
            text = _read(held, begin)
            _inherited[held] += len(text)
            rest = memoryview(_CHATTER.sub(b"", text))
            while rest:
                rest = rest[os.write(2, rest) :]


def _read(held: int, begin: int) -> bytes:
    """To the end, without moving the place at which others write."""
    parts = []
    while part := os.pread(held, 1 << 16, begin):
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


def _has_heirs() -> bool:
    """Whether a child holds such a file as its stderr."""
    with contextlib.suppress(OSError):
        children = [pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
        return any(map(_is_heir, children))
    return False


def _is_heir(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return NAME in str(Path(f"/proc/{pid}/fd/2").readlink())
    return False
