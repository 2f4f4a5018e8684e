"""Try a function of the program in a copy of the process: whatever it opens, draws, prints or changes in memory ends
with the copy; what it writes on disk stays.

The program's handler of SIGCHLD is not called for the copy, except where another thread takes the signal (torch's and
OpenMP's take any) or the system cannot say whose it was (no sigtimedwait, as on a Mac). At worst it is called once too
often, never once too seldom.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

PATIENCE_S = 10.0  # s for an answer. proposed: many times what a batch takes; timings of slow data sets would settle it
CHILD_ENDS = {signal.SIGCHLD} if hasattr(signal, "SIGCHLD") else set[signal.Signals]()
MOST = 1 << 16
"""Bytes of an answer, which is numbers: what a pipe takes at once."""


class TriedApart(Exception):
    """It failed there, did not end in time, or nothing can be copied here."""


def apart(ask: Callable[[], Any]) -> Any:
    """Return what `ask` returns, as JSON carries it. Raises TriedApart."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CHILD_ENDS) if hasattr(signal, "sigtimedwait") else None
    try:
        return _asked(ask, before)
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _asked(ask: Callable[[], Any], before: set[int] | None) -> Any:
    """`before`: the signals that the program blocks, where one more is blocked now."""
    if not hasattr(os, "fork"):
        raise TriedApart("no process can be copied here")
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():  # Python warns of threads; the copy uses none of them
            warnings.simplefilter("ignore")
            child = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        raise TriedApart(str(error)) from None
    if child == 0:
        _answer(ask, writer, before)
    os.close(writer)
    try:
        heard = _heard(reader)
    finally:
        os.close(reader)
        _end(child)
        if before is not None:
            _forget(child)
    if "is" not in heard:
        raise TriedApart(str(heard.get("failed", "no answer")))
    return heard["is"]


def _answer(ask: Callable[[], Any], writer: int, before: set[int] | None) -> None:
    """Answer in the copy, which ends here; on one thread, as a loader's workers, since a pool's threads were not
    copied."""
    try:
        import torch

        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.alarm(int(PATIENCE_S) + 1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        sys.stdout = sys.stderr = os.fdopen(nowhere, "w")  # they may be other streams than those three
        torch.set_num_threads(1)
        os.write(writer, json.dumps({"is": ask()}).encode())
    except BaseException as error:
        os.write(writer, json.dumps({"failed": type(error).__name__}).encode())
    finally:
        os._exit(0)


def _heard(reader: int) -> dict[str, Any]:
    """{"is": answer}, {"failed": which error}, or nothing."""
    until, answer = time.monotonic() + PATIENCE_S, b""
    while (left := until - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        part = os.read(reader, MOST)
        if not part:
            return dict(json.loads(answer)) if answer else {}
        answer += part
    return {}


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):  # the program may have waited for any child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _forget(child: int) -> None:
    """Takes the blocked signal of the copy's end away. Two signals become one: another child's is sent again."""
    taken = signal.sigtimedwait(CHILD_ENDS, 0)
    if taken is not None and (taken.si_pid != child or _another_waits()):
        os.kill(os.getpid(), signal.SIGCHLD)


def _another_waits() -> bool:
    """Whether a child of the program's has news that nobody has asked for."""
    news = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_ALL, 0, news) is not None
    except ChildProcessError:
        return False
