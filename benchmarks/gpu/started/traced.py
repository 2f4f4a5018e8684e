"""Runs a script as it is under torch.profiler and notes its steps by clocks of its own.

    python benchmarks/gpu/started/traced.py TRACE.json STEPS.json script.py [args]

The profiler steps where an optimizer update ends. STEPS.json holds the profiled steps' lengths in ms, by the host's
clock and, where a device has a part, by its own events.
"""

import itertools
import json
import runpy
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

WAIT, WARMUP, ACTIVE = 10, 3, 8


class Ends:
    """The ends of steps, and the profiler that is told of them."""

    def __init__(self, running):
        self.running, self.host, self.device = running, [], []

    def __call__(self, *_):
        if torch.cuda.is_initialized():
            self.device.append(torch.cuda.Event(enable_timing=True))
            self.device[-1].record()
        self.host.append(time.perf_counter())
        if len(self.host) <= WAIT + WARMUP + ACTIVE:
            self.running.step()

    def steps(self):
        """Of the profiled steps; the last one's end also stops the profiler, which is not its business."""
        first, last = WAIT + WARMUP - 1, WAIT + WARMUP + ACTIVE
        host, device = self.host[first:last], self.device[first:last]
        if device:
            torch.cuda.synchronize()
        return {
            "host_ms": [1e3 * (after - before) for before, after in itertools.pairwise(host)],
            "device_ms": [before.elapsed_time(after) for before, after in itertools.pairwise(device)],
        }


def main():
    trace, steps, script = sys.argv[1:4]
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(script).resolve().parent)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(
        activities=activities, schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(trace), record_shapes=True, with_stack=True,
    ) as running:  # fmt: skip
        ends = Ends(running)
        register_optimizer_step_post_hook(ends)
        runpy.run_path(script, run_name="__main__")
    Path(steps).write_text(json.dumps(ends.steps()))


if __name__ == "__main__":
    main()
