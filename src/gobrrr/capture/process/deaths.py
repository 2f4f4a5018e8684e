"""When did each process of a job end? By the kernel's handles, from outside: a killed rank leaves no words."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from pathlib import Path

from gobrrr.recording.model.endings import GONE
from gobrrr.system import files

LOOK_MS = 500
"""Between two looks for processes that are new."""


class Deaths:
    """Notes when the processes that were watched into a folder end, while it is entered; nothing where the system has
    no handles of processes (Linux before 5.3)."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ended = folder, dict[int, int]()
        self._wake, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._look, name="gobrrr deaths", daemon=True)

    def __enter__(self) -> Deaths:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stop)
        self._thread.join()
        os.close(self._wake)
        if self._ended:
            with contextlib.suppress(OSError):
                files.write(self._folder / GONE, json.dumps(self._ended).encode())

    def _look(self) -> None:
        known, over, poll = dict[int, int](), set[int](), select.poll()
        poll.register(self._wake, select.POLLHUP)
        try:
            while True:
                for file in self._folder.glob("seen-*.json"):
                    pid = int(file.stem.partition("-")[2])
                    if pid in known.values() or pid in over:
                        continue
                    try:
                        handle = os.pidfd_open(pid)
                    except ProcessLookupError:  # over between two looks
                        over.add(pid)
                        continue
                    known[handle] = pid
                    poll.register(handle, select.POLLIN)
                found = [handle for handle, _ in poll.poll(LOOK_MS)]
                for handle in found:
                    if handle != self._wake:
                        poll.unregister(handle)
                        os.close(handle)
                        over.add(known[handle])
                        self._ended[known.pop(handle)] = time.time_ns()
                if self._wake in found:
                    return
        except (AttributeError, OSError, ValueError):  # what is not known is not told
            return
        finally:
            for handle in known:
                os.close(handle)
