"""Records of the process for the journal: how it began, and which errors came up while it was watched."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from gobrrr.capture.hooks.transform_guard import is_the_programs
from gobrrr.capture.source.user_code import UserFiles
from gobrrr.capture.steps import device_memory
from gobrrr.system import processes


def start() -> dict[str, Any]:
    """The record that a journal begins with: two clocks at one moment, rank, versions, threads, device.

    Not the command, whose arguments may be secrets, and not the interpreter: nobody should start what a file names.
    """
    import torch

    return {
        "type": "start",
        "clock": [time.time_ns(), time.perf_counter_ns()],
        "pid": os.getpid(),
        "began": processes.began(),
        "rank": _number(os.environ.get("RANK")),
        "world_size": _number(os.environ.get("WORLD_SIZE")),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": device_memory.name(),
        "costs": {"lookup_ns": lookup_ns()},
    }


def no_step(folder: Path) -> None:
    """Leave who did the work of a process without steps: CPU seconds of its own, and of the children it waited for."""
    spent = os.times()
    own, children = spent.user + spent.system, spent.children_user + spent.children_system
    file = folder / f"seen-{os.getpid()}.work"
    file.write_text(f"{own:.2f} {children:.2f}", encoding="utf-8")
    file.chmod(0o600)


PEER = re.compile(
    r"connection (closed|reset)|timed out|broken pipe|socket|peer|watchdog|ncclRemoteError", re.IGNORECASE
)
"""Words of errors that another rank's end causes (gloo, NCCL, MPI, the store)."""


def last_words(folder: Path, steps: int) -> None:
    """Leave how a rank ended: the class of its error and the user's line where it was, never the message."""
    error, user = getattr(sys, "last_value", None), UserFiles()
    trace, where = error.__traceback__ if error is not None else None, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if user.is_user(code.co_filename):
            where = {"file": code.co_filename, "line": trace.tb_lineno, "function": code.co_name}
        trace = trace.tb_next
    found = {
        "pid": os.getpid(), "steps": steps, "ended": time.time_ns(), "where": where,
        "error": type(error).__name__ if error is not None else "",
        "peer": type(error).__module__.startswith("torch") or bool(PEER.search(str(error))) if error else False,
    }  # fmt: skip
    file = folder / f"ended-{os.getpid()}.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    file.chmod(0o600)


@contextlib.contextmanager
def noted(errors: dict[str, str], name: str) -> Iterator[None]:
    """An object of the program's that is like no other costs its own table only."""
    try:
        yield
    except Exception as error:
        errors[name] = f"{type(error).__name__}: {error}"


def complaint(error: BaseException) -> dict[str, Any]:
    """The record of a hook of ours that failed, or of what the program raised while it ran."""
    if is_the_programs(error):
        return {"type": "note", "text": f"{type(error).__name__} came while gobrrr was at work: watching ended there"}
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return {"type": "failed", "error": f"{type(error).__name__}: {error}", "at": at}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


ROUNDS, REPEATS = 400, 5  # calls, and times of them; proposed: takes 1 ms; spreads between runs would settle it


def lookup_ns() -> float:
    """Time that the descriptor adds to one module call, measured before the first step; the other hooks are timed where
    they run."""
    import sys

    from gobrrr.capture.hooks.lookup import Lookup

    class Bare:
        def call(self) -> None: ...

    def looks(_: object) -> None:
        _ = sys._getframe(2).f_code

    class Watched:
        call = Lookup(Bare.call, looks)

    bare, watched = Bare(), Watched()
    plain = min(_time(lambda: bare.call()) for _ in range(REPEATS))
    seen = min(_time(lambda: watched.call()) for _ in range(REPEATS))
    return max(0.0, seen - plain)


def _time(call: Callable[[], object]) -> float:
    began = perf_counter_ns()
    for _ in range(ROUNDS):
        call()
    return (perf_counter_ns() - began) / ROUNDS
