"""A data set that is computed once: the same samples, whoever asks, and only once."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gobrrr.data import cache
from gobrrr.data.sample_cache.store import Store
from gobrrr.errors import GobrrrError
from tests.data.cache_samples import same, samples


class Squares(Dataset[Any]):
    """Tells in a file how often each sample was computed, whichever process did it."""

    def __init__(self, number: int, told: Path) -> None:
        self.number, self.told = number, told

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -self.number <= index < self.number:
            raise IndexError(index)
        with self.told.open("a") as file:
            file.write(f"{index}\n")
        return {"index": index, "x": torch.full((index % 5,), index**2), "words": ["a"] * (index % 3)}


def computed(told: Path) -> list[int]:
    return sorted(map(int, told.read_text().split())) if told.exists() else []


def as_they_are(batch: list[Any]) -> list[Any]:
    return batch


@settings(max_examples=60, deadline=None)
@given(st.lists(samples, min_size=1, max_size=8), st.booleans())
def test_any_list_of_samples_is_read_back(tmp_path_factory: Any, held: list[Any], copy: bool) -> None:
    folder = tmp_path_factory.mktemp("cache")
    first = cache(held, folder, copy=copy, key="held", check=False)
    assert all(same(one, other) for one, other in zip(first, held, strict=True))
    second = cache([None] * len(held), folder, copy=copy, key="held", check=False)
    assert all(same(second[at], sample) for at, sample in enumerate(held))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_fill_it_and_later_epochs_and_processes_read(tmp_path: Path, method: str) -> None:
    told = tmp_path / "told"
    plain = Squares(97, tmp_path / "other")
    dataset = cache(Squares(97, told), tmp_path / "cache", check=False)
    for _ in range(2):
        loader = DataLoader(
            dataset, batch_size=4, num_workers=3, multiprocessing_context=method, collate_fn=as_they_are
        )
        got = [sample for batch in loader for sample in batch]
        assert all(same(one, plain[at]) for at, one in enumerate(got)) and len(got) == 97
        assert computed(told) == list(range(97))
    assert all(same(cache(Squares(97, told), tmp_path / "cache", check=False)[at], plain[at]) for at in range(97))
    assert computed(told) == list(range(97))
    assert len(list((tmp_path / "cache").glob("part-*.data"))) <= 3


def test_shards_are_taken_over(tmp_path: Path) -> None:
    """Workers that come and go would leave a file each per epoch."""
    for epoch in range(5):
        dataset = cache(Squares(50, tmp_path / "told"), tmp_path / "cache", check=False)
        for index in range(10 * epoch, 10 * epoch + 10):
            dataset[index]
        del dataset
    assert len(list((tmp_path / "cache").glob("part-*"))) == 2
    assert computed(tmp_path / "told") == list(range(50))


def test_threads_share_it(tmp_path: Path) -> None:
    dataset = cache(Squares(200, tmp_path / "told"), tmp_path / "cache", check=False)
    wrong: list[int] = []

    def read(part: int) -> None:
        for index in [*range(part, 200, 2), *range(200)]:
            sample = dataset[index]
            if sample["index"] != index or not bool((sample["x"] == index**2).all()):
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and set(computed(tmp_path / "told")) == set(range(200))


def test_what_is_written_to_a_sample_does_not_reach_the_store(tmp_path: Path) -> None:
    dataset = cache(Squares(9, tmp_path / "told"), tmp_path / "cache", check=False)
    dataset[4]["x"].zero_()
    dataset[4]["x"].zero_()
    assert dataset[4]["x"].tolist() == [16] * 4


def test_without_copies_the_file_stays_as_it_is(tmp_path: Path) -> None:
    held = [np.arange(3), torch.arange(3)]
    for _ in range(2):
        dataset = cache(held, tmp_path / "cache", copy=False)
        array, tensor = dataset[0], dataset[1]
    with pytest.raises(ValueError, match="read-only"):
        array += 1
    tensor += 1
    size = sum(one.stat().st_size for one in (tmp_path / "cache").iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataset[1].tolist() == [0, 1, 2]
    assert sum(one.stat().st_size for one in (tmp_path / "cache").iterdir()) == size
    assert cache(held, tmp_path / "cache")[1].tolist() == [0, 1, 2]


class Windows(Dataset[Any]):
    """Gives views of one tensor of its own."""

    def __init__(self) -> None:
        self.values = torch.arange(30.0)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return self.values[index : index + 10] if index >= 0 else self.values[:10]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[at] for at in indices]


@pytest.mark.parametrize("at", [12, -1])
@pytest.mark.parametrize("copy", [True, False])
def test_who_changes_a_sample_does_not_change_the_data_set(tmp_path: Path, at: int, copy: bool) -> None:
    dataset = cache(Windows(), tmp_path / "cache", copy=copy)
    dataset[at].mul_(0)
    for sample in dataset.__getitems__([at, 3]):
        sample.mul_(0)
    assert dataset[15].equal(torch.arange(15.0, 25)) and dataset[2].equal(torch.arange(2.0, 12))


class Batched(Squares):
    calls: Any = None

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        self.told.with_name("calls").open("a").write(f"{list(indices)}\n")
        return [self[at] for at in indices][: 2 if self.number == 7 else None]


def test_batches_come_in_one_call_for_what_is_missing(tmp_path: Path) -> None:
    dataset = cache(Batched(9, tmp_path / "told"), tmp_path / "cache", check=False)
    assert [one["index"] for one in dataset.__getitems__([3, 1])] == [3, 1]
    assert [one["index"] for one in dataset.__getitems__([0, 1, 2, 3, 0])] == [0, 1, 2, 3, 0]
    assert (tmp_path / "calls").read_text().split("\n")[:2] == ["[3, 1]", "[0, 2, 0]"]
    assert [one["index"] for one in dataset.__getitems__(range(4))] == [0, 1, 2, 3]
    assert len((tmp_path / "calls").read_text().split("\n")) == 3
    short = cache(Batched(7, tmp_path / "told"), tmp_path / "short", check=False)
    with pytest.raises(GobrrrError, match="gave 2 samples for 3 indices"):
        short.__getitems__([0, 1, 2])


def test_indices_mean_what_they_mean_below(tmp_path: Path) -> None:
    dataset = cache(Squares(5, tmp_path / "told"), tmp_path / "cache")
    assert dataset[-1]["index"] == -1 and dataset[np.int64(2)]["index"] == 2 == dataset[torch.tensor(2)]["index"]
    with pytest.raises(IndexError):
        dataset[5]
    assert [one["index"] for one in dataset] == list(range(5))
    with pytest.raises(GobrrrError, match="by its integer index, not by 'a'"):
        dataset["a"]


class Fails(Squares):
    def __getitem__(self, index: int) -> Any:
        return {"index": 1 // (index - 3)} if index == 3 else super().__getitem__(index)


def test_an_error_comes_each_time_and_loses_no_other_sample(tmp_path: Path) -> None:
    dataset = cache(Fails(7, tmp_path / "told"), tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            dataset[3]
    assert [dataset[at]["index"] for at in (0, 1, 2, 4, 5, 6)] == [0, 1, 2, 4, 5, 6]


class Lengthless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Lengthless(), "Lengthless has no length"),
        (Stream(), "Stream gives samples in a row"),
        (iter([1]), "gives samples in a row"),
    ],
)
def test_what_has_no_index_is_refused(tmp_path: Path, dataset: Any, said: str) -> None:
    with pytest.raises(GobrrrError, match=said):
        cache(dataset, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_sample_that_is_not_kept_names_its_index(tmp_path: Path) -> None:
    with pytest.raises(GobrrrError, match="sample 0 cannot be kept: the sample is set"):
        cache([{1}], tmp_path / "a", check=False)[0]
    with pytest.raises(GobrrrError, match="sample 0 cannot be kept: the sample is set"):
        cache([{1}], tmp_path / "b")


def test_it_travels_to_other_processes(tmp_path: Path) -> None:
    dataset = cache(Squares(5, tmp_path / "told"), tmp_path / "cache", check=False)
    assert dataset[3]["index"] == 3
    other = pickle.loads(pickle.dumps(dataset))
    assert other[3]["index"] == 3 and other[4]["index"] == 4
    dataset.store.look()  # which happens by itself at most a hundredth of the time
    assert dataset[4]["index"] == 4
    assert computed(tmp_path / "told") == [3, 4]


def test_the_index_is_small_and_opening_is_no_loop(tmp_path: Path) -> None:
    store = Store(tmp_path, 1_000_000, 0)
    assert store._places.nbytes + store._sizes.nbytes == 12_000_000
    store.put(999_999, b"end")
    assert bytes(Store(tmp_path, 1_000_000, 0).get(999_999)) == b"end"


def test_no_warning_where_nothing_is_wrong(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = cache(Squares(20, tmp_path / "told"), tmp_path / "cache")
        assert all(same(dataset[at], dataset[at]) for at in range(20))


def test_a_process_that_ends_with_it_open_ends_in_silence(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom gobrrr.data import cache\n"
        "dataset = cache(range(9), sys.argv[1])\nprint([dataset[at] for at in range(9)] * 2)"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert not done.returncode and not done.stderr, done.stderr
