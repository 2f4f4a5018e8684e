"""Runs a script and notes its steps, what they consist of and where they are. Knows nothing of gobrrr.

    python clock.py OUT.json training|inference script.py [args]

A training step ends where an optimizer update ends, an inference step where a call of an outermost module ends.
Evidence for the expert's cause: seconds in the loader,
in outermost modules, in backward and in the optimizer; the lines of the script at which it was met by a sampler; and
the ops that took most of three profiled steps.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

PROFILED = (5, 8)
"""Steps; not of ranks (two that profile can wait for each other for ever), nor where only time is asked."""
SAMPLE_S = 0.01
PHASES = ("data", "forward", "backward", "optimizer")


class Clock:
    """Rows (s, seconds of each phase so far), samples per line, profiled ops."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.open: list[str] = []
        self.lines: collections.Counter[int] = collections.Counter()
        self.ops: list[tuple[str, float]] = []
        self.profiler: Any = None
        self.ended = threading.Event()
        self.began = 0.0  # first time that anything was loaded or computed

    def tick(self, *_: object) -> None:
        """A step has ended."""
        self.rows.append((time.perf_counter(), *self.spent.values()))
        if len(self.rows) == PROFILED[0] and not {"RANK", "ZOO_UNPROFILED"} & os.environ.keys():
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profiler.start()
        elif len(self.rows) == PROFILED[1] and self.profiler:
            self.profiler.stop()
            found = self.profiler.key_averages()
            whole = sum(each.self_cpu_time_total for each in found) or 1
            top = sorted(found, key=lambda each: -each.self_cpu_time_total)[:5]
            self.ops = [(each.key, round(each.self_cpu_time_total / whole, 3)) for each in top]

    def wrap(self, owner: Any, name: str, phase: str, then: Callable[[], None] | None = None) -> None:
        """Time the outermost calls of a function as a phase; `then` runs after them."""
        call = getattr(owner, name)

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = phase not in self.open
            self.open.append(phase)
            start = time.perf_counter()
            self.began = self.began or start
            try:
                return call(*args, **kwargs)
            finally:
                self.open.pop()
                if outer:
                    self.spent[phase] += time.perf_counter() - start
                    if then:
                        then()

        setattr(owner, name, timed)

    def sample(self, script: str, main: int) -> None:
        """Where in the script the main thread is, every hundredth of a second."""
        while not self.ended.wait(SAMPLE_S):
            frame = sys._current_frames().get(main)
            while frame is not None and frame.f_code.co_filename != script:
                frame = frame.f_back
            if frame is not None and self.rows:
                self.lines[frame.f_lineno] += 1


def watch(clock: Clock, kind: str) -> None:
    """Hook torch's seams."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    began: list[float] = []

    def stepped(*_: object) -> None:
        clock.spent["optimizer"] += time.perf_counter() - began.pop()
        if kind == "training":
            clock.tick()

    def about(*_: object) -> None:
        began.append(time.perf_counter())

    register_optimizer_step_pre_hook(about)
    register_optimizer_step_post_hook(stepped)
    clock.wrap(_BaseDataLoaderIter, "__next__", "data")
    clock.wrap(torch.nn.Module, "__call__", "forward", clock.tick if kind == "inference" else None)
    clock.wrap(torch.autograd, "backward", "backward")
    clock.wrap(torch.autograd, "grad", "backward")


def main() -> None:
    """Run the script named on the command line, then write what was seen."""
    out, kind, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(script).resolve().parent)
    clock = Clock()
    watch(clock, kind)
    sampler = threading.Thread(target=clock.sample, args=(script, threading.get_ident()), daemon=True)
    sampler.start()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        clock.ended.set()
        sampler.join()
        if os.environ.get("RANK", "0") == "0":
            seen = {"rows": clock.rows, "lines": clock.lines.most_common(5), "ops": clock.ops, "began": clock.began}
            out.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
