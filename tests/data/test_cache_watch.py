"""A data set that is changed after cache(): what it gives then is neither read from the folder nor kept there."""

from __future__ import annotations

import errno
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from gobrrr.data import cache
from gobrrr.errors import GobrrrError


class Scaled(Dataset[Any]):
    def __init__(self) -> None:
        self.k = 1

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index * self.k)

    def set_epoch(self, epoch: int) -> None:
        self.k = epoch


def quietly(call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


@pytest.mark.parametrize("change", ["below", "through", "method"])
def test_it_is_told_once_and_nothing_more_is_read_or_kept(tmp_path: Path, change: str) -> None:
    below = Scaled()
    dataset = cache(below, tmp_path / "c")
    assert dataset[3] == 3
    if change == "below":
        below.k = 7
        dataset.watch.now()  # which happens by itself at most a hundredth of the time
    elif change == "through":
        dataset.k = 7
    else:
        dataset.set_epoch(7)
    with pytest.warns(RuntimeWarning, match="has changed since cache") as told:
        assert [int(dataset[at]) for at in (3, 4, 5)] == [21, 28, 35]
    assert len(told) == 1 and below.k == 7 == dataset.k
    fresh = cache(Scaled(), tmp_path / "c")
    assert quietly(lambda: [int(fresh[at]) for at in range(40)]) == list(range(40))


def test_before_the_first_write_it_is_looked_at(tmp_path: Path) -> None:
    below = Scaled()
    dataset = cache(below, tmp_path / "c", check=False)
    below.k = 7
    with pytest.warns(RuntimeWarning, match="has changed"):
        assert dataset[3] == 21
    assert cache(Scaled(), tmp_path / "c", check=False)[3] == 3


def test_a_change_between_a_read_and_a_computed_sample_is_not_taken_for_use(tmp_path: Path) -> None:
    below = Scaled()
    dataset = cache(below, tmp_path / "c")
    assert dataset[3] == 3
    dataset.watch.now()
    assert dataset[3] == 3  # looked at, and read
    dataset.watch._again = float("inf")
    below.k = 7
    dataset[4]  # not looked at
    dataset.watch.now()
    with pytest.warns(RuntimeWarning, match="has changed"):
        assert dataset[5] == 35


def sets_k(_: int) -> None:
    info: Any = get_worker_info()
    info.dataset.k = 10


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
def test_a_worker_sets_attributes_of_the_data_set_itself(tmp_path: Path) -> None:
    for _ in range(2):
        dataset = cache(Scaled(), tmp_path / "c")
        loader = DataLoader(dataset, batch_size=4, num_workers=1, worker_init_fn=sets_k)
        assert [int(one) for batch in loader for one in batch] == [10 * at for at in range(40)]
        assert [int(dataset[at]) for at in range(40)] == list(range(40))


class Opens(Scaled):
    """Changes by being used: at the first sample, or at each."""

    def __init__(self, each: bool) -> None:
        super().__init__()
        self.each = each
        self.used: list[int] = []

    def __getitem__(self, index: int) -> Any:
        if self.each or not self.used:
            self.used.append(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("check", [True, False])
def test_what_changes_by_being_used_is_kept_nevertheless(tmp_path: Path, each: bool, check: bool) -> None:
    dataset = cache(Opens(each), tmp_path / "c", check=check)
    for _ in range(2):
        got = quietly(lambda: [int(dataset[at]) for at in range(20)] + dataset.__getitems__(range(20, 40)))
        assert got == list(range(40))
        dataset.watch.now()
    assert len(dataset.store) == 40
    assert quietly(lambda: cache(Opens(each), tmp_path / "c", check=check)[7]) == 7


def test_a_key_stands_for_it(tmp_path: Path) -> None:
    dataset = cache(Scaled(), tmp_path / "c", key="mine")
    assert quietly(lambda: dataset[2]) == 2
    dataset.k = 7
    assert quietly(lambda: (int(dataset[2]), int(dataset[3]))) == (2, 21)


def test_a_cache_in_a_cache_opens_twice(tmp_path: Path) -> None:
    for _ in range(2):
        inner = cache(Scaled(), tmp_path / "inner")
        outer = cache(inner, tmp_path / "outer", function=float)
        assert quietly(lambda outer=outer: [outer[at] for at in range(40)]) == list(range(40))
    changed = Scaled()
    changed.k = 2
    with pytest.raises(GobrrrError, match="of something else"):
        cache(cache(changed, tmp_path / "other"), tmp_path / "outer", function=float)


def test_a_relative_folder_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = cache(Scaled(), "c")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    other = pickle.loads(pickle.dumps(dataset))
    assert quietly(lambda: other[3]) == 3 and other.store.get(3) is not None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_at_opening_leaves_no_broken_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fails(_: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, pytest.raises(GobrrrError, match=os.strerror(code)):
        patch.setattr(os, "fsync", fails)
        cache(Scaled(), tmp_path / "c")
    assert not list((tmp_path / "c").iterdir())
    assert cache(Scaled(), tmp_path / "c")[3] == 3
