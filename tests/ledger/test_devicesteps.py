"""Which steps say how long one is beside a device, against queues played by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.ledger.steps.step_stats import batch_means, filling, lingering, runs_ahead, whole_cycles
from gobrrr.machine.model.machine import UNKNOWN
from tests.support.timelines import MS, OFFSET, PID, US, Timeline

HOST, DEVICE = 8.0, 22.5


def played(steps: int, every: int) -> np.ndarray:
    """The host's steps in ms, launching in 8 of the device's 22.5, and waiting for it in every n-th."""
    host = device = 0.0
    walls = []
    for step in range(1, steps + 1):
        begun = host
        host += HOST
        device = max(device, host) + DEVICE
        host = max(host, device) if step % every == 0 else host
        walls.append(host - begun)
    return np.array(walls)


@pytest.mark.parametrize(("every", "steps"), [(5, 20), (10, 40), (16, 100), (50, 300)])
def test_whole_cycles_have_the_mean_of_the_device(every: int, steps: int) -> None:
    walls = played(steps, every)
    assert runs_ahead(walls, DEVICE)
    assert float(whole_cycles(walls, DEVICE).mean()) == pytest.approx(DEVICE + HOST / every), "it idles once a cycle"
    assert float(walls.mean()) < float(np.maximum(walls, DEVICE).mean()) - 3, "which is not what the steps are"


def test_a_run_whose_host_is_ahead_has_the_steps_of_its_device(tmp_path: Path) -> None:
    """The usual plain step takes the host 8 ms; the window shows that the device works 22.5 in each."""
    clock = Timeline()
    clock.plain_steps(*(int(wall * MS) for wall in played(60, every=10)))
    with clock.window(), clock.frame("main"):
        for step in range(3):
            for category, name, after, ns in (("cuda_runtime", "cudaLaunchKernel", 0, 4 * US),
                                              ("kernel", "sm80_xmma_gemm", 10 * US, int(DEVICE * MS))):  # fmt: skip
                args = {"correlation": step, "device": 0, "stream": 7}
                clock.trace.append({"ph": "X", "cat": category, "name": name, "pid": PID, "tid": PID, "args": args,
                                    "ts": f"@{clock.now + after + OFFSET}@", "dur": f"@{ns}@"})  # fmt: skip
            clock.leaf("aten::mm", int((DEVICE + 1) * MS))
            clock.boundary()
    ledger = build_ledger(Profiled(clock.recording(tmp_path)), UNKNOWN)
    assert ledger.step.averaged and ledger.wall == pytest.approx((DEVICE + HOST / 10) * MS)


def test_steps_of_several_kinds_have_their_mean() -> None:
    """Gradients gathered over four batches: the fourth has the update. The host is never ahead."""
    walls = np.tile([10.0, 10.0, 10.0, 30.0], 14)
    assert float(whole_cycles(walls, 14.85).mean()) == pytest.approx(15.0)


def test_a_device_that_keeps_pace_fills_no_queue() -> None:
    walls = np.full(199, 9.95)
    walls[-1] = 30.0
    assert filling(walls, 10.0) == 0 and not runs_ahead(walls, 10.0)
    assert filling(np.array([3.0] * 12 + [10.0] * 40), 10.0) == 12
    assert filling(np.array([3.0] * 40 + [10.0] * 12), 10.0) == 0, "that is most of it"
    assert filling(np.full(20, 3.0), 10.0) == 0 and filling(np.array([]), 10.0) == 0


class Walls:
    def __init__(self, wall: float) -> None:
        self.wall = wall


def steps(*walls: float) -> Any:
    return [Walls(wall) for wall in walls]


def test_what_lingers_is_a_jump_beyond_the_trend() -> None:
    assert lingering(steps(*[10.0] * 20), steps(*[13.0] * 10)) == pytest.approx(0.3)
    grows = [10.0 * 1.01**n for n in range(40)]
    assert abs(lingering(steps(*grows[:25]), steps(*grows[25:]))) < 0.03, "one per cent a step is no jump"
    assert lingering(steps(*[10.0] * 19), steps(*[13.0] * 10)) == 0.0
    assert lingering(steps(*[10.0] * 20), steps(*[13.0] * 9)) == 0.0


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=200))
def test_batches_are_at_most_twice_ten_and_keep_the_mean(walls: list[float]) -> None:
    found = batch_means(np.array(walls))
    assert 1 <= len(found) < 20
    kept = walls[len(walls) % max(1, len(walls) // 10) :]
    assert float(found.mean()) == pytest.approx(float(np.mean(kept)))
