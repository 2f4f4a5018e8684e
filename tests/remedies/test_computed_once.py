"""Samples are the program's own bit for bit, random streams stand where they would, and what is not the same each time
is left alone."""

from __future__ import annotations

import contextlib
import random
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, WeightedRandomSampler  # noqa: E402

from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies import computed_once, kept_samples  # noqa: E402
from gobrrr.remedies.seams import Seams  # noqa: E402


class Applied:
    """What a remedy said, and what took how long and comes once."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.why: list[str] = []
        self.asides: list[int] = []


@contextlib.contextmanager
def applied() -> Iterator[Applied]:
    found = Applied()
    seams = Seams(
        lambda _, detail: found.said.append(detail), declined=lambda _, why: found.why.append(why),
        aside=found.asides.append,
    )  # fmt: skip
    seams.install(["computed_once"])
    try:
        yield found
    finally:
        seams.remove()


class Squares(Dataset):
    """Notes which samples are computed, where no look at it reaches: a list of its own would be a change."""

    def __init__(self, length: int = 12) -> None:
        self.length, self.factor = length, 1

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        NOTES.computed.append(index)
        row = np.arange(3, dtype=np.float32) * index * self.factor
        return {"row": torch.from_numpy(row), "label": index, "text": str(index), "pair": (index, [1.5])}


NOTES: Any = types.ModuleType("notes")


@pytest.fixture(autouse=True)
def _nothing_computed() -> None:
    NOTES.computed = []


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is due whenever it is asked for."""
    monkeypatch.setattr(kept_samples, "_after", lambda began: 0.0)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept samples are not computed anew."""
    monkeypatch.setattr(kept_samples.KeptSamples, "_compare_sample", lambda self, index: None)


def epochs(data: Any, num: int = 3, **how: Any) -> tuple[list[Any], Any]:
    """All batches, with a draw of the program's after each, and where the streams stand at the end."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    loader = DataLoader(data, **({"batch_size": 5, "shuffle": True} | how))
    found = [(batch, torch.rand(1).item()) for _ in range(num) for batch in loader]
    return found, (torch.rand(1).item(), np.random.rand(), random.random())


def same(one: Any, other: Any) -> bool:
    from torch.utils._pytree import tree_flatten

    (ours, shape), (theirs, another) = tree_flatten(one), tree_flatten(other)
    return shape == another and all(
        type(a) is type(b) and (torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b)
        for a, b in zip(ours, theirs, strict=True)
    )


def test_each_sample_is_computed_once_and_batches_and_streams_are_the_same(never: None) -> None:
    plain = epochs(Squares())
    assert len(NOTES.computed) == 36
    NOTES.computed.clear()
    with applied() as found:
        kept = epochs(Squares())
    assert same(plain, kept)
    tried = [0, 0, 4, 4, 8, 8, 11, 11]
    assert sorted(NOTES.computed) == sorted([*range(12), *tried])
    assert len(found.said) == 1 and "Squares" in found.said[0] and not found.why
    assert len(found.asides) == 3, "an epoch of three batches was computed, and no other"


def test_what_comes_once_is_put_aside_and_nothing_else(never: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 7))
    monkeypatch.setattr(kept_samples.time, "perf_counter_ns", lambda: next(clock))
    with applied() as found:
        epochs(Squares(), 2)
    assert found.asides == [7, 7, 7]


def test_what_a_program_writes_into_a_sample_stays_its_own(never: None) -> None:
    def doubles(samples: list[Any]) -> Any:
        for sample in samples:
            sample["row"] *= 2
        return [sample["row"].tolist() for sample in samples]

    plain = epochs(Squares(), collate_fn=doubles)
    with applied():
        assert epochs(Squares(), collate_fn=doubles) == plain


@pytest.mark.parametrize("kind", ["torch", "NumPy", "random"])
def test_who_draws_is_left_alone(kind: str) -> None:
    class Draws(Squares):
        def __getitem__(self, index: int) -> Any:
            drawn = {"torch": lambda: torch.rand(1).item(), "NumPy": np.random.rand, "random": random.random}[kind]()
            return index, drawn

    plain = epochs(Draws())
    with applied() as found:
        assert same(plain, epochs(Draws()))
    assert found.why == [f"sample 0 draws random numbers ({kind})"] and not found.said


def test_one_sample_that_draws_ends_it_with_no_draw_lost_or_made_twice() -> None:
    class Rarely(Squares):
        def __getitem__(self, index: int) -> Any:
            return index, torch.rand(1).item() if index == 7 else 0.5

    plain = epochs(Rarely())
    with applied() as found:
        assert same(plain, epochs(Rarely()))
    assert found.why == ["its samples draw random numbers (torch)"]


def test_a_generator_of_its_own_is_seen() -> None:
    class Own(Squares):
        def __init__(self) -> None:
            super().__init__()
            self.draws = np.random.default_rng(0)

        def __getitem__(self, index: int) -> Any:
            return index, self.draws.random()

    with applied() as found:
        epochs(Own())
    assert found.why == ["sample 0 is another the second time it is computed"]


def test_a_data_set_that_the_program_changes_begins_anew(never: None) -> None:
    def curriculum(data: Squares) -> list[Any]:
        loader, found = DataLoader(data, batch_size=4), []
        for epoch in range(4):
            data.factor = 1 + epoch // 2
            found += [batch["row"] for batch in loader]
        return found

    plain = curriculum(Squares())
    NOTES.computed.clear()
    with applied() as found:
        kept = curriculum(Squares())
    assert all(map(torch.equal, plain, kept)) and not found.why
    assert len(NOTES.computed) == 8 + 2 * 12


def test_a_data_set_that_changes_with_each_epoch_is_given_up(never: None) -> None:
    class Counts(Squares):
        def __getitem__(self, index: int) -> Any:
            self.factor += 1
            return index

    with applied() as found:
        loader = DataLoader(Counts(), batch_size=4)
        batches = [batch.tolist() for _ in range(6) for batch in loader]
    assert batches[:3] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert found.why == ["its data set changes while it is used"]


@pytest.mark.parametrize("given", [True, False])
def test_a_file_that_changes_is_found_by_computing_anew(given: bool, tmp_path: Path, always: None) -> None:
    """An error where a sample of before may have been given meanwhile."""
    file = tmp_path / "rows"
    file.write_text("1")

    class Reads(Squares):
        def __getitem__(self, index: int) -> Any:
            return index, int(file.read_text())

    loader = DataLoader(Reads(), batch_size=12)
    with applied() as found:
        list(loader)
        if given:
            list(loader)
        file.write_text("2")
        error = pytest.raises(GobrrrError, match=r"sample .* was another when it was computed again")
        with error if given else contextlib.nullcontext():
            list(loader)
        assert given or "was another" in found.why[0]
        assert [value.tolist() for _, value in loader] == [[2] * 12], "all remedies are gone"
    assert len(found.said) == 1


def test_one_memory_for_all_samples_is_found_before_one_is_given(always: None) -> None:
    """Its batches are rows of its last sample: what a batch has depends on what is in it."""

    class Reuses(Squares):
        def __init__(self) -> None:
            super().__init__()
            NOTES.row = np.zeros(2)

        def __getitem__(self, index: int) -> Any:
            NOTES.row[:] = index
            return NOTES.row

    def rows() -> list[Any]:
        return epochs(Reuses(), collate_fn=lambda samples: [sample.tolist() for sample in samples])[0]

    plain = rows()
    with applied() as found:
        assert rows() == plain
    assert len(found.why) == 1 and "was another when it was computed again" in found.why[0]


def test_what_a_program_writes_into_the_data_sets_own_memory_reaches_it() -> None:
    class Own(Squares):
        def __init__(self) -> None:
            super().__init__()
            self.rows = np.ones((12, 2))

        def __getitem__(self, index: int) -> Any:
            return self.rows[index]

    def grown(samples: list[Any]) -> list[Any]:
        for sample in samples:
            sample *= 2
        return [sample.tolist() for sample in samples]

    plain = [batch for batch, _ in epochs(Own(), 5, collate_fn=grown)[0]]
    with applied() as found:
        kept = [batch for batch, _ in epochs(Own(), 5, collate_fn=grown)[0]]
    assert kept == plain and found.why == ["its data set changes while it is used"]


def test_batches_that_are_made_in_another_thread_are_left_alone() -> None:
    import threading

    batches: list[Any] = []
    with applied() as found:
        thread = threading.Thread(target=lambda: batches.extend(DataLoader(Squares(), batch_size=12)))
        thread.start()
        thread.join()
    assert len(batches) == 1 and found.why == ["its batches are made beside the program, in another thread"]


def test_comparing_leaves_the_random_streams_where_they_were(always: None) -> None:
    plain = epochs(Squares(), 6)
    NOTES.computed.clear()
    with applied():
        assert same(plain, epochs(Squares(), 6))
    assert len(NOTES.computed) > 20, "some were computed again"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"num_workers": 1}, "the loader has 1 workers: gobrrr.data.cache serves those"),
        ({"sampler": [np.int64(1), np.int64(2)], "shuffle": False}, "names samples by int64"),
    ],
)
def test_who_is_left_alone(how: dict[str, Any], why: str) -> None:
    plain = epochs(Squares(), 2, **how)
    with applied() as found:
        assert same(plain, epochs(Squares(), 2, **how))
    assert why in found.why[0] and not found.said


def test_streams_and_what_has_no_length_are_left_alone() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    class Endless(Squares):
        def __len__(self) -> int:
            raise TypeError

    with applied() as found:
        assert [batch.tolist() for batch in DataLoader(Stream(), batch_size=7)] == [list(range(7))]
        assert not found.why
        list(DataLoader(Endless(), batch_sampler=[[1, 2]]))
    assert found.why == ["its data set (a Endless) has no length"]


def test_what_cannot_be_kept_is_named_and_given_as_it_is() -> None:
    class Strange(Squares):
        def __getitem__(self, index: int) -> Any:
            return {index}

    with applied() as found:
        (batch,) = DataLoader(Strange(), batch_size=12, collate_fn=list)
    assert batch == [{index} for index in range(12)]
    assert found.why == ["the sample is set, which is not kept"]


def test_room_is_asked_for_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed_once, "room", lambda: 600.0)
    plain = epochs(Squares())
    with applied() as found:
        assert same(plain, epochs(Squares()))
    assert found.why[0].startswith("its 12 samples take some ") and not found.said


@pytest.mark.parametrize("make", [torch.tensor, lambda rows: {"rows": torch.tensor(rows)}])
def test_a_batch_in_one_piece_is_passed_on(make: Any) -> None:
    class Whole(Squares):
        def __getitems__(self, indices: list[int]) -> Any:
            return make(indices)

    plain = epochs(Whole(), collate_fn=lambda batch: batch)
    with applied() as found:
        assert same(plain, epochs(Whole(), collate_fn=lambda batch: batch))
    assert found.why == ["its data set gives its batches in one piece"]


def test_samples_of_a_batch_call_are_kept_as_well(never: None) -> None:
    class Many(Squares):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices]

    data = Subset(Many(), list(range(3, 9)))
    plain = epochs(data)
    NOTES.computed.clear()
    with applied():
        assert same(plain, epochs(data))
    assert len(NOTES.computed) == 6 + 8


def test_a_sampler_that_repeats_itself_gets_what_it_names(never: None) -> None:
    def drawn() -> Any:
        return epochs(Squares(), shuffle=False, sampler=WeightedRandomSampler([1.0] * 12, 30))

    plain = drawn()
    with applied():
        assert same(plain, drawn())


def test_two_loaders_of_one_data_set_share_it_and_an_evaluation_has_its_own(never: None) -> None:
    data, other = Squares(), Squares(4)
    with applied() as found:
        for _ in range(2):
            for loader in (DataLoader(data, batch_size=4), DataLoader(data, batch_size=6), DataLoader(other)):
                list(loader)
    assert len(NOTES.computed) == 12 + 4 + 2 * 8 and len(found.said) == 1


def test_a_program_with_a_data_set_for_each_epoch_keeps_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed_once, "MOST_DATASETS", 2)
    with applied() as found:
        for _ in range(3):
            list(DataLoader(Squares(), batch_size=4))
    assert found.why == ["it makes more than 2 data sets"]
