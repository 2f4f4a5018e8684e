"""loadtune on a made pipeline: which settings it picks, what it says they bring, and what they bring.

    python -m benchmarks.loadtune_peer NAME        # needs `pip install loadtune`; prints JSON

It owns the DataLoader, so it is given the pipeline's parts. What its settings bring is measured by processes in turn
that go over the loader as it would make it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from itertools import islice, repeat
from statistics import median
from typing import Any

STEPS, WARM, PAIRS, SECONDS = 60, 10, 3, 3.0
TAKEN = ("num_workers", "prefetch_factor", "persistent_workers", "num_threads")
"""Of its settings those that serve on a CPU and leave the step's numbers alone."""


def picked(name: str) -> dict[str, Any]:
    """Its best settings, and how many times as fast it says they are."""
    import loadtune
    from torch import nn

    from benchmarks.headspace_program import pipeline

    parts = pipeline(name)
    workload = loadtune.Workload(
        name=name, make_dataset=lambda: parts.dataset, make_model=nn.Identity, make_optimizer=lambda model: None,
        train_step=lambda model, optimizer, batch, device: parts.compute(batch),
        default_batch_size=parts.loader["batch_size"], collate_fn=parts.loader.get("collate_fn"),
    )  # fmt: skip
    began = time.monotonic()
    found = loadtune.tune(workload, steps=STEPS, warmup=WARM, fast=True, verbose=False)
    knobs = found.best.knobs if found.best and found.speedup > 1 else loadtune.Knobs()
    settings = {key: value for key in TAKEN if (value := getattr(knobs, key, None))}
    if not settings.get("num_workers"):  # the rest is refused without them
        settings = {key: value for key, value in settings.items() if key == "num_threads"}
    return {"version": loadtune.__version__, "settings": settings, "says": found.speedup, "trials": len(found.trials),
            "seconds": time.monotonic() - began}  # fmt: skip


def step_ns(name: str, settings: dict[str, Any]) -> float:
    """ns per step over the pipeline's loader with these settings, in this process."""
    import torch
    from torch.utils.data import DataLoader

    from benchmarks.headspace_program import pipeline

    if threads := settings.pop("num_threads", None):
        torch.set_num_threads(threads)
    parts = pipeline(name)
    loader = DataLoader(parts.dataset, shuffle=True, **{**parts.loader, **settings})
    batches = (batch for _ in repeat(None) for batch in loader)
    for batch in islice(batches, WARM):
        parts.compute(batch)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() < began + SECONDS:
        parts.compute(next(batches))
        steps += 1
    return (time.perf_counter() - began) / steps * 1e9


def beside(name: str) -> dict[str, Any]:
    """What it picked, with the ratio of the pipeline as it is over that, of processes in turn: median, least, most.
    Raises RuntimeError where it fails."""
    found = _process("--pick", name)
    ratios = []
    for turn in range(PAIRS if found["settings"] else 0):
        order = ({}, found["settings"]) if turn % 2 else (found["settings"], {})
        took = {bool(each): _process("--step", name, json.dumps(each))["ns"] for each in order}
        ratios.append(took[False] / took[True])
    ratios = ratios or [1.0]
    return {**found, "brings": [median(ratios), min(ratios), max(ratios)]}


def _process(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.loadtune_peer", *words]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().rpartition("\n")[2])
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    """One process measures one thing; with a name alone, all of it."""
    first, *rest = sys.argv[1:]
    if first == "--pick":
        print(json.dumps(picked(rest[0])))
    elif first == "--step":
        ns = step_ns(rest[0], json.loads(rest[1]))
        assert math.isfinite(ns)
        print(json.dumps({"ns": ns}))
    else:
        print(json.dumps(beside(first)))


if __name__ == "__main__":
    main()
