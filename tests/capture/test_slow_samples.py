"""Samples that take long are told by their index: as they are fetched, as they were seen, as they are told."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from torch.utils.data import DataLoader, Dataset

from gobrrr.capture.windows.sampler import NO_INDEX, VARIABLE, Fetching, Sampler, look
from gobrrr.ledger.loading.workers import MOST, slow_samples
from gobrrr.ledger.model.ledger import SampleTime
from gobrrr.recording.run_folder.run import Samples, whole_samples
from tests.support.handmade import MS, Case
from tests.support.rule_lines import waiting

A_MS = 1_000_000


class Looks(Dataset):
    """Tells, while a sample is made, which index the frames around it give away."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: Any) -> int:
        fetching = Fetching()
        _, found = look(threading.get_ident(), 200, fetching.codes, VARIABLE)
        self.seen.append(fetching.index(found))
        return 0


@pytest.mark.parametrize(
    ("indices", "seen"),
    [
        ([3, 1, 5], [3, 1, 5]),
        ([np.int64(4), np.int32(2)], [4, 2]),
        (["a", None, True, (1, 2), 1.5, -2, 1 << 63], [NO_INDEX] * 7),
    ],
)
def test_the_index_is_read_off_the_fetcher_s_own_loop(indices: list[Any], seen: list[int]) -> None:
    data = Looks()
    list(DataLoader(data, batch_sampler=[indices]))
    assert data.seen == seen


def test_batches_by_themselves_have_no_index() -> None:
    data = Looks()
    list(DataLoader(data, batch_size=None, sampler=[0, 1]))
    assert data.seen == [NO_INDEX, NO_INDEX]


class Sleeps(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(0.1 if index == 2 else 0.0)
        return index


def test_the_sampler_tells_which_sample_was_made() -> None:
    sampler = Sampler(threading.get_ident(), 0.002, lambda file: file == __file__)
    sampler.start()
    list(DataLoader(Sleeps(), batch_size=4))
    time.sleep(0.02)
    sampler.stop()
    found = sampler.as_json()
    assert 2 in found["index"] and found["index"][-1] == NO_INDEX, "outside the loader there is none"
    assert len(found["index"]) == len(found["t"])


def made(*rows: tuple[int, int, int]) -> Samples:
    """(ms, index, CPU ms) of each time that a thread was looked at."""
    return Samples(
        t=[t * A_MS for t, _, _ in rows], stack=[0] * len(rows), cpu=[c * A_MS if c >= 0 else -1 for _, _, c in rows],
        index=[i for _, i, _ in rows], interval=0.001,
    )  # fmt: skip


def test_a_sample_takes_as_long_as_it_is_seen_and_one_interval() -> None:
    seen = made((1, 7, 1), (5, 7, 2), (9, 7, 3), (10, 8, 4), (30, -1, 5), (40, -1, 6))
    assert slow_samples([seen]) == (SampleTime(7, 9 * MS, 2 * MS),), "8 was seen once: it may have taken any time"


def test_of_several_times_and_threads_the_longest_counts() -> None:
    first = made((1, 7, -1), (5, 7, -1), (6, 3, -1), (8, 3, -1), (20, 7, -1), (29, 7, -1))
    other = made((0, 9, 0), (100, 9, 0))
    assert slow_samples([first, other]) == (
        SampleTime(9, 101 * MS, 0.0), SampleTime(7, 10 * MS, None), SampleTime(3, 3 * MS, None),
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 20), st.integers(-1, 5)), max_size=40))
def test_there_are_never_many_and_none_twice(rows: list[tuple[int, int, int]]) -> None:
    times = sorted(t for t, _, _ in rows)
    found = slow_samples([made(*((t, i, c) for t, (_, i, c) in zip(times, rows, strict=True)))])
    assert len(found) == len({each.index for each in found}) <= MOST
    assert all(a.ns >= b.ns > 0 for a, b in itertools.pairwise(found))


def test_recordings_of_before_have_no_indices() -> None:
    old = replace(made((1, 7, 1), (2, 7, 2)), index=[])
    assert slow_samples([old]) == () and whole_samples(old)
    assert not whole_samples(replace(old, index=[1]))


def slow_ones(*slow: SampleTime) -> Case:
    """Waits of 2 ms of which 4 in 100 are 200; 8 samples a batch."""
    case = waiting(2.0, waits=(2.0,) * 96 + (200.0,) * 4)
    case.extra["slow_samples"] = slow
    return case


def test_slow_samples_are_told_by_their_index_and_cpu_time() -> None:
    (found,) = slow_ones(*(SampleTime(n, (200 - n) * MS, 1 * MS) for n in (30, 40, 50, 60))).raised("BRR407")
    assert "index 30 took 170 ms" in found.message and "sample 60" not in found.evidence
    assert found.evidence["sample 50"].value == 150 * MS
    assert found.evidence["sample 40"].value == 160 * MS and found.evidence["sample 40 cpu"].value == 1 * MS


def test_samples_that_are_none_too_slow_are_not_named() -> None:
    """5 % of the step of 100 ms, and three times what one takes."""
    (found,) = slow_ones(SampleTime(1, 5.1 * MS), SampleTime(2, 4.9 * MS)).raised("BRR407")
    assert "index 1" in found.message and "sample 2" not in found.evidence and "sample 1 cpu" not in found.evidence
    (found,) = slow_ones(SampleTime(2, 4.9 * MS)).raised("BRR407")
    assert "index" not in found.message
