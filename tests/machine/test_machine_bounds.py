"""Ceilings that contradict each other are lifted to what was reached; nothing is ever lowered."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.machine.model.bounds import bounded
from gobrrr.machine.model.figures import doubtful, figures, merged, replaced
from gobrrr.machine.model.machine import CopyCeiling
from gobrrr.system import quiet
from tests.support.machine_samples import figure, machine, products


def test_a_machine_without_contradictions_stays_as_it_is() -> None:
    before, after = figures(machine()), figures(bounded(machine()))
    assert {k: v for k, v in after.items() if k != "cores"} == {k: v for k, v in before.items() if k != "cores"}


def test_cores_are_at_least_what_products_gained_by_their_threads() -> None:
    crowded = machine(
        effective_cores=figure(0.9, "cores"), matmul={"1": products(fp32=100), "all": products(fp32=190)}, copy=()
    )
    assert bounded(crowded).effective_cores.median == pytest.approx(1.9)


def test_cores_are_at_least_what_a_program_kept_busy_and_never_more_than_it_may_use() -> None:
    alone = machine(effective_cores=figure(0.9, "cores"), matmul={}, copy=())
    assert bounded(alone, busy_cores=1.7).effective_cores.median == pytest.approx(1.7)
    assert bounded(alone, busy_cores=3.7).effective_cores.median == 2.0


@pytest.mark.parametrize(("one", "most"), [(100, 60), (20, 100)])
def test_one_thread_and_all_bound_each_other(one: float, most: float) -> None:
    found = bounded(machine(matmul={"1": products(fp32=one), "all": products(fp32=most)}))
    first, second = found.flop_rate("fp32", 1), found.flop_rate("fp32", 2)
    assert first is not None and second is not None
    assert first <= second <= 2 * first
    assert (first, second) >= (one * 1e9, most * 1e9)


def test_one_thread_is_no_less_than_its_part_of_all() -> None:
    found = bounded(machine(matmul={"1": products(fp32=40), "all": products(fp32=100)}))
    assert found.flop_rate("fp32", 1) == pytest.approx(50e9)


@pytest.mark.parametrize("one", [30e9, 60e9])
def test_a_doubtful_figure_says_nothing_of_the_cores(one: float) -> None:
    doubted = {"1": {"fp32": figure(one, "FLOP/s", spread=2.0)}, "all": products(fp32=100)}
    found = bounded(machine(effective_cores=figure(1.0, "cores"), matmul=doubted, copy=()))
    assert found.effective_cores.median == 1.0


def test_copies_bound_each_other() -> None:
    copies = (CopyCeiling(1 << 20, 1, figure(50e9, "B/s")), CopyCeiling(1 << 20, 2, figure(30e9, "B/s")))
    assert bounded(machine(copy=copies)).byte_rate(1 << 20, 2) == pytest.approx(50e9)


def test_only_the_steadier_of_two_measurements_is_taken() -> None:
    wide, steady = figure(100e9, "FLOP/s", spread=0.6), figure(150e9, "FLOP/s", spread=0.1)
    old = machine(matmul={"1": products(fp32=100), "all": {"fp32": wide}})
    assert doubtful(old) == ["matmul/all/fp32"]
    fresh = machine(matmul={"1": products(fp32=500), "all": {"fp32": steady}}, other_load=0.1)
    found = merged(old, fresh)
    assert found.matmul["all"]["fp32"] == steady and found.matmul["1"] == old.matmul["1"]
    assert found.repeats == 1 and found.other_load == 0.1 and not found.doubts
    assert merged(old, replaced(fresh, {"matmul/all/fp32": figure(150e9, "FLOP/s", spread=0.9)})).matmul == old.matmul


def test_figures_come_back_as_they_were() -> None:
    assert replaced(machine(), figures(machine())) == machine()


def stat(busy: int) -> str:
    """/proc/stat of a machine of four CPUs, of which two are busy."""
    rows = {"cpu": 3 * busy, "cpu0": 0, "cpu1": busy, "cpu2": 2 * busy, "cpu3": 0}
    return "".join(f"{name} {user} 0 0 500 0 0 0 0 0 0\n" for name, user in rows.items()) + "intr 7\n"


def test_only_the_cpus_of_this_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may number its CPUs anew: rows of others, or none, would say that nobody is at work."""
    (tmp_path / "proc").mkdir()
    file = tmp_path / "proc" / "stat"
    monkeypatch.setattr(quiet.os, "cpu_count", lambda: 64)
    for allowed, expected in (({0, 2}, 2.0), ({1, 2}, 3.0), ({2, 9}, None), ({32, 33}, None)):
        file.write_text(stat(0))
        monkeypatch.setattr(quiet.os, "sched_getaffinity", lambda _, allowed=allowed: allowed, raising=False)
        found = quiet.busy_cores(tmp_path, lambda _: file.write_text(stat(100)), look=1.0)
        assert found == (None if expected is None else pytest.approx(expected, rel=0.01))


def test_busy_cores_are_the_ticks_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_mine", lambda: None)  # each of the machine's
    (tmp_path / "proc").mkdir()
    file = tmp_path / "proc" / "stat"
    file.write_text("cpu  1000 0 0 500 0 0 0 0 0 0\n")

    def work(seconds: float) -> None:
        file.write_text("cpu  1100 0 50 900 70 0 0 50 0 0\n")  # 200 ticks busy, 50 of them stolen by the host

    found = quiet.busy_cores(tmp_path, work, look=1.0)
    assert found == pytest.approx(2.0, rel=0.01)
    assert quiet.busy_cores(tmp_path / "none", work) is None
