"""All that was recorded of the profiled steps: its phases, and what the device has not begun."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.ledger.steps.profiled_window import profiled_window
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import Source, read
from gobrrr.report.timeline import perfetto as perfetto_findings
from tests.pipeline.test_files import event, kernel, write
from tests.support.timelines import OFFSET, US, Timeline


def test_a_phase_that_goes_on_in_the_next_step_is_a_piece_of_each(tmp_path: Path) -> None:
    clock = Timeline()
    with clock.window(), clock.frame("main"):
        begin = clock.now + OFFSET
        for _ in range(3):
            for _ in range(2):
                with clock.module("Net"):
                    clock.leaf("aten::mm", 10 * US)
            clock.boundary()
    window = profiled_window(clock.recording(tmp_path))
    assert window is not None
    assert [((a - begin) // US, (b - begin) // US, name) for a, b, name in window.phases()] == [
        (0, 20, "forward"), (20, 40, "forward"), (40, 60, "forward")]  # fmt: skip


def test_a_kernel_that_begins_before_its_launch_by_another_clock_is_never_a_launch_too_few(tmp_path: Path) -> None:
    events = [event("ProfilerStep#0", 0, 1000, "user_annotation"), event("aten::mm", 1, 900)]
    for i in range(3):
        events += [event("cudaLaunchKernel", 100 * i + 10, 2, "cuda_runtime", correlation=i),
                   kernel("k", 100 * i + 9, 20, i)]  # fmt: skip
    window = profiled_window(of_trace(read(Source(str(write(tmp_path / "t.json", events))))))
    assert window is not None
    assert window.queue()[1].tolist() == [0, 0, 0]


def test_of_too_many_stretches_the_longest_are_drawn_in_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto_findings, "MOST", 2)
    spans = np.array([[0, 10], [100, 101], [200, 230], [300, 302]])
    assert perfetto_findings._joined(spans, 1000).tolist() == [[0, 10], [200, 230]]
