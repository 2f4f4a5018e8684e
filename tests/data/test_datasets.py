"""Packing as samples come: nothing lost, nothing twice, whatever the window, the workers, the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from gobrrr.data import PackedDataset, PackingCollate, PackingDataset, pack
from gobrrr.errors import GobrrrError


def sequences(lengths: list[int]) -> list[list[int]]:
    """Tokens that tell which sequence they are of."""
    return [[number] * length for number, length in enumerate(lengths)]


class Stream(IterableDataset[list[int]]):
    def __init__(self, held: list[list[int]], divides: bool = False) -> None:
        self.held, self.divides = held, divides

    def __iter__(self) -> Iterator[list[int]]:
        worker = get_worker_info()
        part = (worker.id, worker.num_workers) if worker and self.divides else (0, 1)
        return iter(self.held[part[0] :: part[1]])


class Sized(Stream):
    def __len__(self) -> int:
        return len(self.held)


def numbers(packs: Any) -> list[int]:
    return sorted(sample[0] for one in packs for sample in one)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=60), st.integers(1, 70), st.integers(0, 2))
def test_every_sample_once_and_no_pack_too_full(lengths: list[int], window: int, epoch: int) -> None:
    packing = PackingDataset(sequences(lengths), 20, window=window)
    packing.set_epoch(epoch)
    packs = list(packing)
    assert numbers(packs) == list(range(len(lengths)))
    assert all(0 < sum(map(len, one)) <= 20 for one in packs)
    assert numbers(PackingDataset(Stream(sequences(lengths)), 20, window=window)) == numbers(packs)


@pytest.mark.parametrize("law", ["log-normal", "uniform"])
def test_a_window_of_a_thousand_fills_995_per_mille(law: str) -> None:
    """Bins of one window alone would be 98.3 % full for the uniform law."""
    draw = np.random.RandomState(0)
    drawn = draw.lognormal(4.0, 0.9, 100_000) if law == "log-normal" else draw.randint(1, 513, 100_000)
    lengths = np.clip(drawn, 1, 512).astype(int).tolist()
    packs = sum(1 for _ in PackingDataset([range(length) for length in lengths], 512, window=1024))
    assert sum(lengths) / (512 * packs) >= 0.995


def test_the_order_is_another_each_epoch_and_the_same_for_the_same_seed() -> None:
    packing = PackingDataset(sequences([3, 8, 5, 9, 2, 7] * 20), 10, window=40)
    first, again = list(packing), list(packing)
    packing.set_epoch(1)
    assert first == again != list(packing)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    "packing",
    [
        PackingDataset(sequences([4, 7, 3] * 20), 10, window=16),
        PackingDataset(Stream(sequences([4, 7, 3] * 20), divides=True), 10, window=16, sharded=True),
    ],
    ids=["indexed", "divides itself"],
)
def test_workers_read_every_sample_once(packing: PackingDataset) -> None:
    assert numbers(DataLoader(packing, batch_size=None, num_workers=2)) == list(range(60))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("kind", [Stream, Sized])
def test_a_stream_that_every_worker_would_repeat_is_refused(kind: type[Stream]) -> None:
    loader = DataLoader(PackingDataset(kind(sequences([4, 7, 3] * 20)), 10), batch_size=None, num_workers=2)
    with pytest.raises(GobrrrError, match="every sample 2 times"):
        list(loader)


def test_ranks_read_every_sample_once() -> None:
    parts = [PackingDataset(sequences([4, 7, 3] * 20), 10, rank=rank, num_replicas=3) for rank in range(3)]
    assert sorted(number for part in parts for number in numbers(part)) == list(range(60))


def test_what_does_not_fit_is_said_or_left_out() -> None:
    with pytest.raises(GobrrrError, match="sample 1 of the source has 11 tokens, a bin 10"):
        list(PackingDataset(sequences([4, 11, 3]), 10))
    with pytest.raises(GobrrrError, match="sample 1 of the source has 0 tokens"):
        list(PackingDataset(sequences([4, 0, 3]), 10))
    assert numbers(PackingDataset(sequences([4, 11, 3]), 10, too_long="drop")) == [0, 2]
    for wrong in ({"window": 0}, {"rank": 1}, {"too_long": "cut"}):
        with pytest.raises(GobrrrError):
            PackingDataset([], 10, **wrong)  # type: ignore[arg-type]


def test_an_error_of_the_data_set_comes_through() -> None:
    class Breaks(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            raise OSError(f"no sample {at}")

    with pytest.raises(OSError, match="no sample 0"):
        list(PackingDataset(Breaks([1]), 10))


def test_bins_known_beforehand_are_shuffled_by_a_loader() -> None:
    lengths = [4, 7, 3, 9, 1, 6] * 10
    samples = [{"input_ids": torch.full((length,), number)} for number, length in enumerate(lengths)]
    packed = PackedDataset(samples, pack(lengths, 12))
    loader = DataLoader(packed, batch_size=4, shuffle=True, collate_fn=PackingCollate(12))
    seen = [set(batch["input_ids"][batch["document_ids"] >= 0].tolist()) for batch in loader]
    assert sum(map(len, seen)) == 60 and set().union(*seen) == set(range(60))
