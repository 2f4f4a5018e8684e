"""Runs a script as `python script.py args` would and notes when each of its steps ended. Knows nothing of gobrrr.

    python benchmarks/step_clock.py OUT.json training|inference|backward script.py [args]

A training step ends where an optimizer update ends, an inference step where a top-level module call ends: by the
device's own clock where the program uses one, since the host runs ahead of it. Beside the clock (ns) each row has the
minor page faults, the resident bytes and the CPU time (ns) of the process so far: evidence for illnesses of memory, and
for other processes on the cores; and what it has waited for its loaders so far (ns).
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import resource
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

rows: list[tuple[int, int, int, int, int]] = []
waited = 0
"""ns in DataLoaders' __next__."""
events: list[torch.cuda.Event] = []
PAGE = os.sysconf("SC_PAGE_SIZE")
STATM = Path("/proc/self/statm")
WITH_WORKERS = os.environ.get("STEP_CLOCK_WORKERS") == "1"
"""Reading them takes milliseconds a step: where bytes are judged, not time."""


def tick(*_: object) -> None:
    """Note the end of a step."""
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    resident = int(STATM.read_text().split()[1]) * PAGE if STATM.exists() else 0
    resident += alone_in_workers() if WITH_WORKERS else 0
    rows.append((time.perf_counter_ns(), faults, resident, time.process_time_ns(), waited))
    if torch.cuda.is_initialized():
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()


def alone_in_workers() -> int:
    """Bytes that loader workers share with no other process."""
    total = 0
    for child in multiprocessing.active_children():
        rollup = Path(f"/proc/{child.pid}/smaps_rollup")
        with contextlib.suppress(OSError):  # it has ended
            lines = rollup.read_text().splitlines()
            total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))
    return total


def watch_waits() -> None:
    """Count the time that the program asks its loaders for batches."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    plain: Callable[..., Any] = _BaseDataLoaderIter.__next__

    def timed(iterator: Any) -> Any:
        global waited
        began = time.perf_counter_ns()
        try:
            return plain(iterator)
        finally:
            waited += time.perf_counter_ns() - began

    _BaseDataLoaderIter.__next__ = timed  # type: ignore[method-assign]


def by_the_device() -> list[tuple[int, int, int, int, int]]:
    """The rows with the times at which the device was done with each step; as they are where it had no part in some."""
    if not events or len(events) != len(rows):
        return rows
    torch.cuda.synchronize()
    after = [round(events[0].elapsed_time(event) * 1e6) for event in events]
    return [(rows[0][0] + ns, *row[1:]) for ns, row in zip(after, rows, strict=True)]


def watch_updates() -> None:
    """A step is one optimizer update."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(tick)


def watch_forwards() -> None:
    """A step is one call of a module that no other module calls."""
    call: Callable[..., Any] = torch.nn.Module.__call__
    depth = 0

    @functools.wraps(call)
    def counted(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            depth -= 1
            if depth == 0:
                tick()

    torch.nn.Module.__call__ = counted  # type: ignore[method-assign]


def watch_backwards() -> None:
    """A step ends where a backward pass begins: what updates the weights by hand follows it."""
    backward = torch.Tensor.backward

    @functools.wraps(backward)
    def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        tick()
        backward(tensor, *args, **kwargs)

    torch.Tensor.backward = counted  # type: ignore[method-assign]


def main() -> None:
    """Run the script named on the command line, then write the rows."""
    out, kind, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(script).resolve().parent)
    {"training": watch_updates, "inference": watch_forwards, "backward": watch_backwards}[kind]()
    watch_waits()
    start, pid = time.perf_counter_ns(), os.getpid()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if os.getpid() == pid:
            out.write_text(json.dumps({"start_ns": start, "end_ns": time.perf_counter_ns(), "rows": by_the_device()}))


if __name__ == "__main__":
    main()
