"""BRR604: what workers hold alone, as it is read, as it grows, as it is told."""

from __future__ import annotations

import mmap
import time
from typing import Any

import pytest

from gobrrr.capture.windows import workers
from gobrrr.capture.windows.workers import Readings, private_bytes
from gobrrr.ledger.loading.workers import worker_memory
from gobrrr.ledger.model.ledger import WorkerMemory
from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import Samples, Worker
from tests.support.handmade import Case
from tests.support.rule_lines import GETITEM, waiting, worker

KIB, MIB = 1 << 10, 1 << 20


def read(*rows: tuple[int, int], pid: int = 9) -> Worker:
    return Worker(pid, 10, 1, Samples(), memory=rows)


def test_memory_that_is_written_to_is_ones_own() -> None:
    before = private_bytes()
    if before is None:
        pytest.skip("the kernel does not tell")
    with mmap.mmap(-1, 32 * MIB, mmap.MAP_PRIVATE) as held:  # what malloc gives may be one's own already
        for page in range(0, len(held), 4096):
            held[page] = 1
        after = private_bytes()
    assert after is not None and 30 * MIB < after - before < 64 * MIB


def test_readings_are_few_and_end_where_they_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    now, spent = [0], [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(time, "thread_time_ns", lambda: spent[0])

    def dear() -> int:
        spent[0] += 20_000_000
        return 7

    monkeypatch.setattr(workers, "private_bytes", dear)
    found = Readings()
    for moment in range(0, 1000, 50):
        now[0] = moment * 1_000_000
        found.look(moment)
    assert [batches for batches, _ in found.rows] == [0, 400, 800], "20 ms of each 400: 5 %"
    cheap = Readings()
    monkeypatch.setattr(workers, "private_bytes", lambda: 7)
    cheap.look(1)
    now[0] += 149_000_000
    cheap.look(2)
    now[0] += 1_000_000
    cheap.look(3)
    assert [batches for batches, _ in cheap.rows] == [1, 3]


def test_where_the_kernel_does_not_tell_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(workers, "_ROLLUP", tmp_path / "none")
    found = Readings()
    found.look(1)
    assert private_bytes() is None and found.rows == []
    assert worker_memory((read(),)) is None


def test_growth_is_per_batch_and_batches_that_wait_are_no_part_of_it() -> None:
    steady = read(*((10 * n, 10 * n * MIB) for n in range(6)), pid=1)
    waits = read(*((n, 80 * MIB * (n % 5 == 1)) for n in range(10)), pid=2)
    assert worker_memory((steady,)) == WorkerMemory(1, 50 * MIB, MIB)
    found = worker_memory((steady, waits))
    assert found is not None and (found.workers, found.held) == (2, 50 * MIB)
    assert found.growth_per_batch == pytest.approx(MIB / 2), "each makes half of the batches"


@pytest.mark.parametrize("at", range(1, 12))
def test_one_jump_is_no_growth_wherever_it_comes(at: int) -> None:
    """A garbage collection in a worker: flat at 11 MiB, flat at 23."""
    jumped = read(*((n, (11 + 12 * (n >= at)) * MIB) for n in range(12)))
    assert worker_memory((jumped,)) == WorkerMemory(1, 23 * MIB, 0.0)


def test_what_levels_off_grows_by_what_it_still_does() -> None:
    fills = read(*((n, min(n, 6) * MIB) for n in range(12)))
    assert worker_memory((fills,)) == WorkerMemory(1, 6 * MIB, 0.0)


def test_a_single_worker_that_grows_is_not_the_loader() -> None:
    grows, flat = [(n, n * MIB) for n in range(6)], [(n, MIB) for n in range(6)]
    found = worker_memory((read(*grows, pid=1), read(*flat, pid=2), read(*flat, pid=3)))
    assert found is not None and found.growth_per_batch == 0


def test_of_too_few_batches_no_growth_is_told() -> None:
    assert worker_memory((read(*((n, n * MIB) for n in range(5))),)) == WorkerMemory(1, 4 * MIB, None)
    same = read(*((8 + (n > 10), n * MIB) for n in range(20)))
    assert worker_memory((same,)) == WorkerMemory(1, 19 * MIB, None), "twenty readings, two batches"


def test_a_worker_that_was_watched_twice_counts_once() -> None:
    first, second = read((0, 0), (1, 5)), read((5, 9), (6, 9))
    assert worker_memory((first, second)) == WorkerMemory(1, 9, None)


def growing(growth: float | None = MIB, held: int = 100 * MIB, rss: int | None = 500 * MIB, **fields: Any) -> Case:
    given = {"num_workers": 2} | fields
    case = waiting(2.0, workers=(worker(3.0),), facts={"rss_bytes": rss, "memory_limit": 16 << 30},
                   **given)  # fmt: skip
    case.extra["worker_memory"] = WorkerMemory(2, held, growth)
    return case


def test_workers_that_grow_are_told_where_samples_are_made() -> None:
    (found,) = growing().raised("BRR604")
    assert found.where == (GETITEM,) and found.cost_bytes == MIB and found.severity == "note"
    assert "1.00 MiB more per step" in found.message and found.saving.ceiling_ns == 0


def test_little_growth_and_none_that_is_known_are_silent() -> None:
    assert growing(256 * KIB).raised("BRR604") and not growing(255 * KIB).raised("BRR604")
    assert not growing(None).raised("BRR604") and not growing(-MIB).raised("BRR604")
    case = growing()
    case.extra["worker_memory"] = None
    assert not case.raised("BRR604") and not growing(num_workers=0).raised("BRR604")


def test_workers_that_are_started_anew_grow_for_an_epoch_only() -> None:
    """1 MiB per step: 64 batches come to 64 MiB, 63 do not."""
    epochs = {"iter_ns": (1, 1), "length": 10**6}
    assert not growing(num_batches=2 * 63, **epochs).raised("BRR604")
    (found,) = growing(num_batches=2 * 64, **epochs).raised("BRR604")
    assert "an epoch of 64 batches adds 64.0 MiB" in found.message
    (found,) = growing(num_batches=2 * 900, **epochs).raised("BRR604")
    assert "each may reach" in found.message, "two of 500 MiB, of which they have 100"
    assert growing(num_batches=2 * 63, persistent_workers=True, **epochs).raised("BRR604")


def test_in_a_first_epoch_the_data_set_says_how_long_workers_live() -> None:
    once = {"iter_ns": (1,), "num_batches": 20}
    assert not growing(length=8 * 63, **once).raised("BRR604") and growing(length=8 * 64, **once).raised("BRR604")
    for endless in ({"length": None}, {"length": 8, "stream": True}):
        (found,) = growing(**once, **endless).raised("BRR604")
        assert "each may reach" in found.message


def test_copies_that_end_with_the_epoch_have_room() -> None:
    """Two copies of 4 GiB have none; 100 MiB more in an epoch have."""
    epochs = {"rss": 4 << 30, "held": 0, "num_batches": 200, "iter_ns": (1, 1)}
    assert growing(**epochs).raised("BRR604")[0].severity == "note"


def test_it_is_a_warning_where_copies_have_no_room() -> None:
    """Two workers of 3 GiB beside 3 in 16: 6 of 13 GiB less than half, of 11 more."""
    assert growing(rss=3 << 30, held=0).raised("BRR604")[0].severity == "note"
    assert growing(rss=4 << 30, held=0).raised("BRR604")[0].severity == "warning"
    assert growing(rss=None).raised("BRR604")[0].severity == "note"


def test_without_sampled_lines_the_data_set_is_shown() -> None:
    case = growing()
    case.extra["workers"] = ()
    assert case.raised("BRR604")[0].where == (Span("data.py", 10, "__getitem__"),)
    case = growing(dataset_span=None, created_span=None)
    case.extra["workers"] = ()
    assert case.raised("BRR604")[0].where == ()
