"""What is noted of a loader, on real ones."""

from __future__ import annotations

import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Subset, TensorDataset  # noqa: E402

from gobrrr.capture.loaderfacts import loader_facts  # noqa: E402

TABLE = TensorDataset(torch.arange(32))


class Batched(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)

    def __getitems__(self, indices: list[int]) -> Any:
        return list(torch.tensor(indices))


ROWS = BatchSampler(RandomSampler(TABLE), batch_size=8, drop_last=False)


@pytest.mark.parametrize(
    ("loader", "one_by_one"),
    [
        (DataLoader(TABLE, batch_size=8), True),
        (DataLoader(Subset(TABLE, range(16)), batch_size=8), True),
        (DataLoader(TABLE, sampler=ROWS, batch_size=None), False),
        (DataLoader(Batched(), batch_size=8), False),
        (DataLoader(Subset(Batched(), range(16)), batch_size=8), False),
    ],
    ids=["table", "part of a table", "batches of indices", "__getitems__", "part with __getitems__"],
)
def test_who_takes_a_batch_of_indices(loader: Any, one_by_one: bool) -> None:
    found = loader_facts(iter(loader), sys._getframe())
    assert (found["one_by_one"], found["batch_size"]) == (one_by_one, 8)


def test_a_program_that_counts_its_calls_counts_none_of_ours() -> None:
    lengths: list[str] = []
    iterator = iter(DataLoader(Batched(), batch_size=8))

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "__len__":
            lengths.append(frame.f_code.co_filename)

    assert loader_facts(iterator, sys._getframe())["length"] == 32
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        found = loader_facts(iterator, sys._getframe())
    finally:
        sys.setprofile(before)
    assert (found["length"], found["in_memory"], lengths) == (None, False, [])
