"""`python -m gobrrr.rehearsal.stage`: plays the script that comes on stdin, and prints a line of JSON for each scene.

It runs in the interpreter that has torch, which need not be the one that gobrrr is installed in: so it needs the
standard library and torch alone. Parts are played in turn, both sides of each next to each other and their order
changed from round to round, so that what else runs on the machine hits both alike.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from gobrrr.rehearsal import free_memory
from gobrrr.rehearsal.callables import Run, make
from gobrrr.system.processes import die_with_the_parent

MIN_ROUNDS, ROUNDS, MAX_ROUNDS = 3, 8, 40
"""Fewer rounds say nothing; parts are taken in as long as so many should fit; and more than the last say no more."""
HOPELESS = 10
"""Multiple of today's time for which one round is enough: convolutions of float16 without units for it take 80 times as
long, three rounds of them do not fit, and a remedy that costs so much must not stay recommended."""
GRACE = 0.5
"""Share of its seconds after which a process that hangs in one call is ended; what it has said until then counts."""
CALL_NS = 300_000
"""Calls are repeated until they take this long: the clock and what is around a call then weigh nothing."""
COLD = "optimizer"
"""Maker whose call comes once in a step, after all that the step reads: its caches are filled with something else
before each call. A fused update is up to 1.8 times as slow then, one op by op hardly (2.7 million elements, one thread
of a Xeon)."""
OTHERS = 16 << 20
"""Floats that fill the caches: 64 MB, 32 times what a core has for itself."""


def main() -> int:
    """Play until the time is up; a scene that fails says why. The first argument is the process that waits for it."""
    begin = time.monotonic()
    die_with_the_parent(starter=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    script = json.load(sys.stdin)
    signal.alarm(math.ceil((1 + GRACE) * script["seconds"]))  # a call that hangs in torch hears no exception
    import torch

    if script["torch"] != str(torch.__version__):
        return _say({"remedy": "", "why": f"this is torch {torch.__version__}, the program's was {script['torch']}"})
    if script["device"] != "cpu" and not torch.cuda.is_available():
        return _say({"remedy": "", "why": "the device is not here"})
    torch.set_num_threads(script["threads"])
    torch.set_float32_matmul_precision(script["precision"])
    torch.manual_seed(0)
    free_memory.confine(script["device"])
    for scene in script["scenes"]:
        left = script["seconds"] - (time.monotonic() - begin)
        if left <= 0:
            _say({"remedy": scene["remedy"], "why": "the time was up"})
            continue
        try:
            found = _played(torch, script, scene, min(left, scene["seconds"]))
        except Exception as error:  # a torch that lacks an op, a kernel that refuses a dtype
            found = {"why": f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"}
        _say({"remedy": scene["remedy"], **found})
    return 0


def _say(found: dict[str, Any]) -> int:
    print(json.dumps(found), flush=True)
    return 0


def _played(torch: Any, script: dict[str, Any], scene: dict[str, Any], seconds: float) -> dict[str, Any]:
    script = {**script, "changed": {name for part in scene["parts"] for name in part["then"] or ()}}
    parts: list[list[_Side]] = []
    took = 0.0
    for i, spec in enumerate(scene["parts"]):
        refused = free_memory.refusal(torch, script["device"], scene["parts"][: i + 1])
        if refused and not any(part["ns"] for part in scene["parts"][:i]):
            return {"why": refused}
        if refused or (took * ROUNDS > seconds and any(part["ns"] for part in scene["parts"][:i])):
            break
        parts.append([_Side(torch, script, spec[side]) for side in ("today", "then")])
        took += sum(side.prepare() for side in parts[-1])
    deadline = time.monotonic() + seconds  # what torch imports and compiles for a first call is not the scene's
    rounds: list[list[tuple[float, float]]] = []
    while len(rounds) < MAX_ROUNDS and (time.monotonic() < deadline or not rounds):
        first = len(rounds) % 2  # who comes first changes
        both = [[sides[first].timed(), sides[1 - first].timed()] for sides in parts]
        rounds.append([(timed[first], timed[1 - first]) for timed in both])
    short = f"{len(rounds)} rounds in the time there was, {MIN_ROUNDS} are needed"
    return {"rounds": rounds} if len(rounds) >= MIN_ROUNDS or _is_hopeless(rounds) else {"why": short}


def _is_hopeless(rounds: list[list[tuple[float, float]]]) -> bool:
    """Every round says that what is there today would take far longer."""
    whole = [[pair for pair in each if pair[0]] for each in rounds]
    return all(sum(then for _, then in each) > HOPELESS * sum(today for today, _ in each) for each in whole)


@cache
def _others(torch: Any) -> Any:
    return torch.ones(OTHERS)


class _Side:
    """One side of a part, ready to be timed; nothing at all where the side is null."""

    def __init__(self, torch: Any, script: dict[str, Any], spec: dict[str, Any] | None) -> None:
        self._torch, self._spec, self._script = torch, spec or {}, script
        self._run: Run | None = make(torch, spec, script["device"]) if spec else None
        self._calls = 1
        self._others = _others(torch) if script["device"] == "cpu" and self._spec.get("make") == COLD else None
        # One thread's own CPU time leaves out what others take from its core; more threads wait for each other.
        alone = script["device"] == "cpu" and script["threads"] == 1 and "threads" not in script["changed"]
        self._clock = time.thread_time_ns if alone else time.perf_counter_ns

    def prepare(self) -> float:
        """The first calls, which make buffers, primitives and states; returns the seconds of one sample."""
        if self._run is None:
            return 0.0
        with self._setting():
            self._run()
            self._wait()
            begin, start = time.monotonic(), self._clock()
            self._run()
            self._wait()
            took = time.monotonic() - begin
            if self._others is None:
                self._calls = max(1, min(1000, CALL_NS // max(1, self._clock() - start)))
        return took * self._calls

    def timed(self) -> float:
        """ns of one call."""
        if self._run is None:
            return 0.0
        with self._setting():
            if "threads" in self._script["changed"]:
                self._run()  # threads that were just made are no part of what is timed, on either side
            if self._others is not None:
                self._others.add_(1)
            self._wait()
            start = self._clock()
            for _ in range(self._calls):
                self._run()
            self._wait()
            return (self._clock() - start) / self._calls

    def _wait(self) -> None:
        if self._script["device"] != "cpu":
            self._torch.cuda.synchronize()

    @contextlib.contextmanager
    def _setting(self) -> Iterator[None]:
        threads, precision = self._spec.get("threads"), self._spec.get("precision")
        torch, script = self._torch, self._script
        if threads:
            torch.set_num_threads(threads)
        if precision:
            torch.set_float32_matmul_precision(precision)
        try:
            yield
        finally:
            if threads:
                torch.set_num_threads(script["threads"])
            if precision:
                torch.set_float32_matmul_precision(script["precision"])


if __name__ == "__main__":
    sys.exit(main())
