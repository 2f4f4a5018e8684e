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
        "libraries": libraries(),
        "threads": torch.get_num_threads(),
        "device": device_memory.name(),
        "costs": {"lookup_ns": lookup_ns()},
    }


LIBRARIES = (
    "accelerate", "apex", "bitsandbytes", "datasets", "deepspeed", "flash_attn", "lightning", "numpy", "peft",
    "pytorch_lightning", "timm", "torchaudio", "torchvision", "transformers", "triton", "trl", "vllm", "xformers",
)  # fmt: skip
"""Libraries whose version may move a step's time."""


def libraries() -> dict[str, str]:
    """Versions of those that the program has imported; nothing is imported for it."""
    spaces = {name: getattr(sys.modules.get(name), "__dict__", {}) for name in LIBRARIES}
    versions = {name: space.get("__version__") for name, space in spaces.items()}
    return {name: version for name, version in versions.items() if type(version) is str}


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


SPAWNED = "ProcessRaisedException"
"""Error of torch.multiprocessing.spawn for what one of its processes raised: that is in its message, and its pid."""
LINE, CLASS = re.compile(r'^  File "(.+)", line (\d+), in (\S+)$', re.MULTILINE), re.compile(r"^([A-Za-z_][\w.]*)(:|$)")


def last_words(folder: Path) -> None:
    """Leave how a rank ended: the class of its error and the user's line where it was, never the message."""
    error, user = getattr(sys, "last_value", None), UserFiles()
    trace, where = error.__traceback__ if error is not None else None, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if user.is_user(code.co_filename):
            where = {"file": code.co_filename, "line": trace.tb_lineno, "function": code.co_name}
        trace = trace.tb_next
    module, name = (type(error).__module__, type(error).__name__) if error is not None else ("", "")
    operation = type(error) is RuntimeError or isinstance(error, ConnectionError)
    _leave(folder, f"ended-{os.getpid()}.json", {
        "pid": os.getpid(), "ended": time.time_ns(), "where": where, "error": name,
        "peer": module.startswith("torch.distributed") or (operation and bool(PEER.search(str(error)))),
    })  # fmt: skip


def spawned_raised(folder: Path) -> None:
    """Leave what ended a spawned rank, where this process has it from torch: the rank itself is only told to exit."""
    error: Any = getattr(sys, "last_value", None)
    if type(error).__name__ != SPAWNED:
        return
    user, text = UserFiles(), str(error)
    lines = [found for found in LINE.findall(text) if user.is_user(found[0])]
    named = next(filter(None, map(CLASS.match, reversed(text.rstrip().splitlines()))), None)
    module, _, name = named[1].rpartition(".") if named else ("", "", "")
    where = {"file": lines[-1][0], "line": int(lines[-1][1]), "function": lines[-1][2]} if lines else None
    _leave(folder, f"raised-{int(error.error_pid)}.json", {
        "pid": int(error.error_pid), "error": name, "where": where,
        "peer": module.startswith("torch.distributed") or (name == "RuntimeError" and bool(PEER.search(text))),
    })  # fmt: skip


def _leave(folder: Path, name: str, found: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(found), encoding="utf-8")
    (folder / name).chmod(0o600)


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
