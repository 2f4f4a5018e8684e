"""How do the arms of a referee that was killed end? Stopped processes do not see that their parent is gone: programs
that an arm has started would stand still for ever. One small process of standard library only, started with the first
arm, reads from a pipe which groups and processes there are; the pipe ends with the referee, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

WAIT_S = 1.0
"""Seconds that a referee which ends as it should waits for the helper to end."""
SELF = os.path.abspath(__file__)  # noqa: PTH100 - pathlib would be most of what the helper imports


class Heirs:
    """The referee's side: tells the helper whom to end. From any thread; that there is no helper costs no arm."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[int, str] = {}
        self._helper: subprocess.Popen[bytes] | None = None

    def know(self, pids: Sequence[int]) -> None:
        """An arm: the leader of its group, and what it has started into groups of its own."""
        line = " ".join(f"{pid}:{_began(pid)}" for pid in pids)
        with self._lock:
            if self._lines.get(pids[0]) != line:
                self._lines[pids[0]] = line
                self._say(f"{pids[0]} {line}")

    def forget(self, leader: int) -> None:
        """It has ended: its number may be another's from now on."""
        with self._lock:
            if self._lines.pop(leader, None) is not None:
                self._say(str(leader))

    def close(self) -> None:
        """Let the helper go. One that is stopped, say, is not waited for."""
        import subprocess

        with self._lock:
            helper, self._helper = self._helper, None
        if helper is not None and helper.stdin is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                helper.stdin.close()
                helper.wait(WAIT_S)

    def _say(self, line: str) -> None:
        """Tell the helper; one that is not there, or was ended, is started and hears of all that there are."""
        with contextlib.suppress(OSError):
            if self._helper is None or self._helper.poll() is not None:
                if self._helper is not None and self._helper.stdin is not None:
                    self._helper.stdin.close()
                self._helper = _started()
                line = "\n".join(f"{leader} {words}" for leader, words in self._lines.items())
            assert self._helper.stdin is not None
            self._helper.stdin.write(f"{line}\n".encode())


HEIRS = Heirs()
"""Heirs of this process, for all of its arms."""


def _started() -> subprocess.Popen[bytes]:
    """The helper: in a session of its own, which no Ctrl-C reaches, with none of our descriptors but the pipe."""
    import atexit
    import subprocess

    atexit.unregister(HEIRS.close)
    atexit.register(HEIRS.close)
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", SELF], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd="/", start_new_session=True, bufsize=0,
    )  # fmt: skip
    assert helper.stdin is not None
    os.set_blocking(helper.stdin.fileno(), False)  # one that does not read keeps nobody waiting
    return helper


def _began(pid: int) -> str:
    """When a process began, in ticks since boot: with its number it is known for good. Empty where nobody says."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as SELF
            return file.read().rpartition(b") ")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def outlive(lines: Iterable[str]) -> None:
    """The helper's life: read who there is until the referee is gone, then end them."""
    arms: dict[str, list[str]] = {}
    for line in lines:
        if line.endswith("\n") and line.strip():  # else the referee was killed in the middle of it, or has no arm
            leader, *known = line.split()
            arms[leader] = known
    for known in arms.values():
        _end(known)


def _end(known: Sequence[str]) -> None:
    """An arm's group, and each process outside it, where they are still those that were meant."""
    for place, word in enumerate(known):
        pid, _, began = word.partition(":")
        now = _began(int(pid))
        with contextlib.suppress(OSError):
            # of a group whose leader has ended the number stays taken while anybody is left in it
            if place == 0 and now in ("", began):
                os.killpg(int(pid), signal.SIGKILL)
            elif place and began and now == began:
                os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    outlive(sys.stdin)
