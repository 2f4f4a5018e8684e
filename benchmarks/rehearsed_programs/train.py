"""python train.py NAME [--steps N]: the program as it is. python train.py NAME --against REMEDY: both, paired."""

from __future__ import annotations

import argparse
import json
import time

import torch
from models import PROGRAMS, step_of


def main() -> None:
    """Train, or print the paired times of both as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--against", default="")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.against:
        print(json.dumps(paired(args.name, args.against, args.seconds)))
        return
    step = step_of(args.name)
    for _ in range(args.steps):
        step()


def paired(name: str, remedy: str, seconds: float) -> list[tuple[float, float]]:
    """Seconds of a step as it is and with the remedy, next to each other, in changing order. With one thread its own
    CPU seconds: what others take from its core is then in neither."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    steps = (step_of(name), step_of(name, remedy))
    for step in steps * 2:
        step()
    found: list[tuple[float, float]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(found) < 8:
        order = (0, 1) if len(found) % 2 else (1, 0)
        took = [0.0, 0.0]
        for i in order:
            begin = clock()
            steps[i]()
            took[i] = clock() - begin
        found.append((took[0], took[1]))
    return found


if __name__ == "__main__":
    main()
