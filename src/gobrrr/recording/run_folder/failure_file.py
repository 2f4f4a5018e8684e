"""What did a watched process leave when it ended: the allocation that it died of, and a rank's last words?"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from gobrrr.recording.model.endings import GONE, Ending
from gobrrr.recording.model.out_of_memory import OutOfMemory
from gobrrr.recording.trace_files.oom_log import filled
from gobrrr.system import files

MOST = 4 << 20
"""Bytes of the file that are read: the watcher bounds what it writes."""


def failures(folder: Path) -> list[OutOfMemory]:
    """Return the processes of a run that died of memory; none where nothing was noted, or it cannot be read."""
    found = []
    for path in sorted(folder.glob("out-of-memory-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, OverflowError):
            found.append(filled(msgspec.json.decode(files.read(path, MOST), type=OutOfMemory)))
    return found


def endings(folder: Path) -> dict[int, Ending]:
    """Return by pid how the ranks of a run ended that were not killed."""
    found = {}
    for path in sorted(folder.glob("ended-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            one = msgspec.json.decode(files.read(path, MOST), type=Ending)
            found[one.pid] = one
    for path in sorted(folder.glob("raised-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            one = msgspec.json.decode(files.read(path, MOST), type=Ending)
            known = found.get(one.pid, one)
            found[one.pid] = msgspec.structs.replace(known, error=one.error, where=one.where, peer=one.peer)
    return found


def deaths(folder: Path) -> dict[int, int]:
    """Return by pid when processes of a run ended, ns since the epoch; nothing where nobody looked."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.json.decode(files.read(folder / GONE, MOST), type=dict[int, int])
    return {}
