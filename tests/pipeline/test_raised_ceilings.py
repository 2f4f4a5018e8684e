"""A ceiling below what the program itself reached was measured at a bad moment; nothing else moves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gobrrr.ledger.ops.raised_ceilings import raised
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import CopyCeiling, Machine
from gobrrr.pipeline import judging
from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.run import Recording, Start
from tests.support.handmade import machine, measured
from tests.support.timelines import MS, PID, Timeline

THREADS = 2
SIDE = 512
PRODUCT = 2 * SIDE**3


def recorded(tmp_path: Path, *ops: tuple[str, int, tuple[tuple[int, ...], ...]], **changes: Any) -> Recording:
    """A window of one step that runs `ops` (name, ns, shapes)."""
    timeline = Timeline()
    timeline.plain_steps(5 * MS, 5 * MS)
    with timeline.window(), timeline.frame("main"):
        timeline.line(3)
        for name, ns, shapes in ops:
            timeline.leaf(name, ns, *shapes)
        timeline.boundary()
    return timeline.recording(tmp_path, start=Start(pid=PID, threads=THREADS), **changes)


def slow_machine(rate: float = 50e9) -> Machine:
    """Two threads, fp32 at `rate`, 10 GB/s for copies of any size."""
    found = machine(fp32=rate)
    copies = tuple(CopyCeiling(1 << n, THREADS, measured(10e9, "B/s")) for n in (16, 20, 24, 28))
    everywhere = {threads: {"fp32": measured(rate)} for threads in ("1", "all")}
    return msgspec.structs.replace(found, threads=THREADS, copy=copies, matmul=everywhere)


def products(ns: int, count: int = 4) -> list[tuple[str, int, tuple[tuple[int, ...], ...]]]:
    return [("aten::mm", ns, ((SIDE, SIDE), (SIDE, SIDE)))] * count


def test_products_faster_than_the_ceiling_raise_it(tmp_path: Path) -> None:
    found = raised(slow_machine(), Profiled(recorded(tmp_path, *products(MS))), "highest")
    assert found.flop_rate("fp32", THREADS) == pytest.approx(PRODUCT / 1e-3)
    assert found.flop_rate("fp32", 1) == pytest.approx(PRODUCT / 2e-3)  # two threads are no more than twice as fast


def test_slower_products_leave_it(tmp_path: Path) -> None:
    before = slow_machine(1e12)
    assert raised(before, Profiled(recorded(tmp_path, *products(MS))), "highest") == before


def test_what_a_device_did_says_nothing_of_this_computers_ceilings(tmp_path: Path) -> None:
    recording, before = recorded(tmp_path, *products(MS)), slow_machine()
    assert recording.trace is not None
    trace = replace(recording.trace, signals=recording.trace.signals | {"device"})
    assert raised(before, Profiled(replace(recording, trace=trace)), "highest") == before


def test_a_single_lucky_call_is_no_measurement(tmp_path: Path) -> None:
    before = slow_machine()
    assert raised(before, Profiled(recorded(tmp_path, *products(MS, count=2))), "highest") == before


def test_what_no_cpu_reaches_was_not_done_here(tmp_path: Path) -> None:
    """On the meta device a large product takes as long as its shapes."""
    before, huge = slow_machine(), (100 * SIDE, 100 * SIDE)
    ops = [("aten::mm", 400_000, (huge, huge)), ("aten::add", 200_000, ((64 * SIDE, 1024), (64 * SIDE, 1024)))] * 4
    assert raised(before, Profiled(recorded(tmp_path, *ops)), "highest") == before


def test_ops_as_short_as_the_clock_is_coarse_do_not_count(tmp_path: Path) -> None:
    before = slow_machine()
    assert raised(before, Profiled(recorded(tmp_path, *products(50_000))), "highest") == before


def test_under_medium_precision_it_is_mediums_ceiling_that_moves(tmp_path: Path) -> None:
    before = slow_machine()
    both = {k: v | {"fp32_medium": measured(60e9)} for k, v in before.matmul.items()}
    found = raised(msgspec.structs.replace(before, matmul=both), Profiled(recorded(tmp_path, *products(MS))), "medium")
    assert found.flop_rate("fp32", THREADS) == 50e9
    assert found.flop_rate("fp32_medium", THREADS) == pytest.approx(PRODUCT / 1e-3)


def test_streams_raise_the_copy_of_their_own_size_only(tmp_path: Path) -> None:
    shape = ((1024, 1024), (1024, 1024))  # 8 MiB read, 4 MiB written: the 16 MiB ceiling
    ops = [("aten::add", 200_000, shape)] * 4
    found = raised(slow_machine(), Profiled(recorded(tmp_path, *ops)), "highest")
    rates = {c.working_set: c.rate.median for c in found.copy}
    assert rates[1 << 24] == pytest.approx(12 * (1 << 20) / 200e-6)
    assert {rates[1 << n] for n in (16, 20, 28)} == {10e9}


def test_without_a_window_nothing_changes(tmp_path: Path) -> None:
    before = slow_machine()
    assert raised(before, Profiled(recorded(tmp_path, windows=(), trace=None)), "highest") == before


def test_cores_that_the_program_kept_busy_are_effective(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.boundary()
    for _ in range(8):
        timeline.now += 5 * MS
        timeline.note(event_kinds.CPU, 0, int(1.9 * timeline.now))
        timeline.boundary()
    before = msgspec.structs.replace(slow_machine(), effective_cores=measured(0.9, "cores"), usable_cores=2)
    recording = timeline.recording(tmp_path, start=Start(pid=PID, threads=THREADS), windows=(), trace=None)
    assert raised(before, Profiled(recording), "highest").effective_cores.median == pytest.approx(1.9, rel=0.1)


def test_compare_holds_a_run_against_what_the_run_itself_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded(tmp_path, *products(MS))
    (tmp_path / "rank0-7.journal").touch()
    monkeypatch.setattr("gobrrr.pipeline.judging.load_run", lambda _: [recording])
    monkeypatch.setattr("gobrrr.pipeline.ceilings.ceilings", lambda *_: slow_machine())
    assert judging._recording(str(tmp_path)) == (
        Profiled(recording),
        raised(slow_machine(), Profiled(recording), None),
    )
    assert raised(slow_machine(), Profiled(recording), None) != slow_machine()
