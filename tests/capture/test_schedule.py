"""Who had the cores: the CPUs of the affinity, what the host took, and what threads waited for; read from files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gobrrr.capture.steps import vitals as noted
from gobrrr.machine.probe import system_probe
from gobrrr.recording.model import event_kinds, vitals

STAT = """cpu  400 0 40 9000 100 0 0 60 0 0
cpu0 100 0 10 3000 50 0 0 20 0 0
cpu1 300 0 30 6000 50 0 0 40 0 0
intr 12345
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinities are Linux's")
@pytest.mark.parametrize(("allowed", "busy", "stolen"), [({0, 1}, 500, 60), ({1}, 370, 40), ({0}, 130, 20)])
def test_busy_cpus_are_those_of_the_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[int], busy: int, stolen: int
) -> None:
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert noted.busy(str(tmp_path)) == [(event_kinds.BUSY, busy * tick), (event_kinds.STOLEN, stolen * tick)]
    assert noted.cores() == len(allowed)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinities are Linux's")
@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (2.5, 3), (64.0, 8)])
def test_cores_are_those_of_the_affinity_cut_by_the_quota(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(system_probe, "_quota", lambda root: quota)
    assert noted.cores() == cores


def tasks(tmp_path: Path, *waited: int) -> Path:
    for number, ns in enumerate(waited):
        (tmp_path / str(number)).mkdir(exist_ok=True)
        (tmp_path / str(number) / "schedstat").write_text(f"123456 {ns} 42\n")
    return tmp_path


def test_waits_of_all_threads_are_summed_once_a_second(tmp_path: Path) -> None:
    waited = noted.Waited(str(tasks(tmp_path, 1000, 500)))
    assert waited.marks(0) == [(event_kinds.WAITED, 1500)]
    assert waited.marks(999_999_999) == []
    (tmp_path / "7").mkdir()  # a thread that is gone before it was asked
    assert waited.marks(1_000_000_000) == [(event_kinds.WAITED, 1500)]


@pytest.mark.parametrize("text", ["", "no numbers here\n"])
def test_a_kernel_that_does_not_tell_is_asked_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "1").mkdir()
    if text:
        (tmp_path / "1" / "schedstat").write_text(text)
    waited = noted.Waited(str(tmp_path))
    assert waited.marks(0) == []
    tasks(tmp_path, 5, 5)
    assert waited.marks(5_000_000_000) == []


def test_loads_are_rises_over_the_plain_steps() -> None:
    from gobrrr.recording.model.steps import Step

    second = 1_000_000_000
    rows = [(t * second, kind, 0, t * rise) for t in range(5) for kind, rise in RISES.items()]
    found = vitals.rates(_recording(rows), [Step(t * second, (t + 1) * second, 0) for t in range(4)])
    assert found["waiting_load"] == pytest.approx(0.5) and found["stolen_load"] == pytest.approx(0.25)


RISES = {
    event_kinds.CPU: 800_000_000,
    event_kinds.BUSY: 1_000_000_000,
    event_kinds.WAITED: 500_000_000,
    event_kinds.STOLEN: 250_000_000,
}


def _recording(rows: list[tuple[int, int, int, int]]):  # type: ignore[no-untyped-def]
    from gobrrr.recording.run_folder.run import Recording, Start

    return Recording(Path(), Start(), np.array(rows, np.int64), (), (), None, (), (), {}, "exit", 0, ())
