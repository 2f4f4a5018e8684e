"""What a function of the program's would give, tried in a copy of the process: whatever it opens, draws, prints or
changes ends with the copy."""

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

PATIENCE_S = 10.0
MOST = 1 << 16
"""Bytes of an answer, which is numbers: what a pipe takes at once."""


class TriedApart(Exception):
    """It failed there, did not end in time, or nothing can be copied here."""


def apart(ask: Callable[[], Any]) -> Any:
    """What `ask` returns, as JSON carries it. Raises TriedApart."""
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
        _answer(ask, writer)
    os.close(writer)
    try:
        heard = _heard(reader)
    finally:
        os.close(reader)
        _end(child)
    if "is" not in heard:
        raise TriedApart(str(heard.get("failed", "no answer")))
    return heard["is"]


def _answer(ask: Callable[[], Any], writer: int) -> None:
    """In the copy, which ends here; one thread, as a loader's workers have, for those of a pool were not copied."""
    try:
        import torch

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
