"""Samples are the program's own bit for bit, random streams stand where they would, and what is not the same each time
is left alone."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import random
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, WeightedRandomSampler  # noqa: E402

from gobrrr.data.sample_cache.samples import encode  # noqa: E402
from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies.cache import cache, kept_datasets, kept_samples  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402


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
    install(seams, ["computed_once"])
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
        LOG.info(index)
        row = np.arange(3, dtype=np.float32) * index * self.factor
        return {"row": torch.from_numpy(row), "label": index, "text": str(index), "pair": (index, [1.5])}


LOG = logging.getLogger("computed")
HELD = "its samples are parts of what its data set holds, which a write into one would reach"
TOGETHER = "its data set makes the samples of a batch together, which may depend on each other"
COMPUTED: list[int] = []


@pytest.fixture(autouse=True)
def _noted() -> Iterator[None]:
    """A logger is told by its name, whatever hangs on it."""
    handler = logging.Handler()
    handler.emit = lambda record: COMPUTED.append(record.msg)  # type: ignore[method-assign, assignment, arg-type]
    LOG.setLevel(logging.INFO)
    LOG.addHandler(handler)
    COMPUTED.clear()
    yield
    LOG.removeHandler(handler)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is due whenever it is asked for."""
    monkeypatch.setattr(kept_samples, "_after", lambda began: (0.0, 0.0, 0.0))


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept samples are not computed anew, and looks take no time."""
    monkeypatch.setattr(kept_samples, "MOST_SHARE", float("inf"))
    monkeypatch.setattr(kept_samples.KeptSamples, "_compare", lambda self, dataset, indices: None)


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
    assert len(COMPUTED) == 36
    COMPUTED.clear()
    with applied() as found:
        kept = epochs(Squares())
    assert same(plain, kept)
    again = COMPUTED[5:7]
    assert again == [COMPUTED[0], COMPUTED[4]], "the first batch's first and last"
    assert sorted(COMPUTED) == sorted([*range(12), *again])
    assert len(found.said) == 1 and "Squares" in found.said[0] and not found.why
    assert len(found.asides) == 3 + 1, "an epoch of three batches was computed, and no other; the first one's proof"


def test_what_comes_once_is_put_aside_and_nothing_else(never: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 7))
    monkeypatch.setattr(kept_samples.time, "perf_counter_ns", lambda: next(clock))
    with applied() as found:
        epochs(Squares(), 2, collate_fn=lambda samples: len(samples))
    assert found.asides == [7, 7, 7, 7], "computing and the proof, then computing each batch"


def test_what_a_program_writes_into_a_sample_stays_its_own(never: None) -> None:
    def doubles(samples: list[Any]) -> Any:
        for sample in samples:
            sample["row"] *= 2
        return [sample["row"].tolist() for sample in samples]

    plain = epochs(Squares(), collate_fn=doubles)
    with applied():
        assert epochs(Squares(), collate_fn=doubles) == plain


def test_what_a_program_writes_into_a_batch_that_torch_made_stays_its_own(never: None) -> None:
    """A batch of one, an array and a list too."""

    class Nested(Squares):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) | {"array": np.full(2, index), "list": [torch.ones(2), "a"]}

    def written(size: int) -> list[Any]:
        torch.manual_seed(0)
        found = []
        for batch in (batch for _ in range(3) for batch in DataLoader(Nested(), batch_size=size, shuffle=True)):
            found.append(encode({name: batch[name] for name in ("row", "label", "array", "list", "text")}))
            for tensor in (batch["row"], batch["label"], batch["array"], batch["list"][0]):
                tensor.add_(7)
            batch["list"].append(1)
            batch["text"].clear()
        return found

    for size in (1, 5):
        plain = written(size)
        with applied() as found:
            assert written(size) == plain and found.said


class Rows(Dataset):
    """A row and a number, by each index of another length where `longer` says so."""

    def __init__(self, length: int, longer: int = 0) -> None:
        self.length, self.longer = length, longer

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return torch.arange(64 + self.longer * index).clone(), index


@pytest.mark.parametrize("kind", ["torch", "NumPy", "random"])
def test_who_draws_is_left_alone(kind: str) -> None:
    class Draws(Squares):
        def __getitem__(self, index: int) -> Any:
            drawn = {"torch": lambda: torch.rand(1).item(), "NumPy": np.random.rand, "random": random.random}[kind]()
            return index, drawn

    plain = epochs(Draws())
    with applied() as found:
        assert same(plain, epochs(Draws()))
    assert found.why == [f"its samples draw random numbers ({kind})"] and not found.said


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

    plain = epochs(Own())
    with applied() as found:
        assert same(plain, epochs(Own())), "nothing is drawn from it but by the program"
    assert found.why == ["what it holds cannot be looked at: a numpy.random._generator.Generator"]


def test_a_data_set_that_the_program_changes_begins_anew(never: None) -> None:
    def curriculum(data: Squares) -> list[Any]:
        loader, found = DataLoader(data, batch_size=4), []
        for epoch in range(4):
            data.factor = 1 + epoch // 2
            found += [batch["row"] for batch in loader]
        return found

    plain = curriculum(Squares())
    COMPUTED.clear()
    with applied() as found:
        kept = curriculum(Squares())
    assert all(map(torch.equal, plain, kept)) and not found.why
    assert len(COMPUTED) == 2 * (2 + 12)


@pytest.mark.parametrize("ends", ["a part", "early", "repeated"])
def test_a_change_between_epochs_that_do_not_ask_for_all_begins_anew(ends: str, never: None) -> None:
    """A validation split by SubsetRandomSampler, an epoch that is broken off: its end is where the iterator goes."""

    def curriculum(data: Squares) -> list[Any]:
        part = range(6) if ends == "a part" else [0, 3] * 3 if ends == "repeated" else range(12)
        loader, found = DataLoader(data, batch_size=2, sampler=list(part)), []
        for epoch in range(4):
            data.factor = 1 + epoch // 2
            for number, batch in enumerate(loader):
                found.append(batch["row"])
                if ends == "early" and number == 2:
                    break
        return found

    plain = curriculum(Squares())
    with applied() as found:
        kept = curriculum(Squares())
    assert all(map(torch.equal, plain, kept)) and not found.why and found.said


def test_a_change_amid_the_last_epoch_is_told_as_it_ends(never: None) -> None:
    told: list[BaseException] = []
    seams = Seams(failed=told.append)
    install(seams, ["computed_once"])
    try:
        data = Squares()
        loader = DataLoader(data, batch_size=4, sampler=range(8))
        list(loader)
        for _ in loader:
            data.factor = 5
    finally:
        seams.remove()
    assert [str(error) for error in told] and "changed during an epoch" in str(told[0])


def test_a_change_while_an_iterator_is_held_is_an_error_that_says_so(never: None) -> None:
    data = Squares()
    loader = DataLoader(data, batch_size=4, sampler=range(8))
    with applied(), pytest.raises(GobrrrError, match="or before its iterator was released"):
        for data.factor in (1, 1, 2):
            held = iter(loader)
            list(held)


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
            self.row = np.zeros(2)

        def __getitem__(self, index: int) -> Any:
            self.row[:] = index
            return self.row

    def rows() -> list[Any]:
        return epochs(Reuses(), collate_fn=lambda samples: [sample.tolist() for sample in samples])[0]

    plain = rows()
    with applied() as found:
        assert rows() == plain
    assert found.why == ["parts of its samples lie in the same memory"]


def test_what_a_program_writes_into_the_data_sets_own_memory_reaches_it(never: None) -> None:
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
    assert kept == plain and found.why == [HELD]


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
    COMPUTED.clear()
    with applied():
        assert same(plain, epochs(Squares(), 6))
    assert len(COMPUTED) > 20, "some were computed again"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"num_workers": 1}, "the loader has workers: compute the samples before training instead"),
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
    monkeypatch.setattr(cache, "memory_room", lambda: 600.0)
    plain = epochs(Squares())
    with applied() as found:
        assert same(plain, epochs(Squares()))
    assert found.why[0].startswith("its 12 samples take some ") and not found.said


def test_samples_of_a_batch_call_are_left_alone_but_those_of_hugging_face(never: None) -> None:
    """A batch of its own making may look at the others; rows of a table do not."""

    class Many(Squares):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices]

    data = Subset(Many(), list(range(3, 9)))
    plain = epochs(data)
    with applied() as found:
        assert same(plain, epochs(data))
    assert found.why == [TOGETHER] and not found.said
    Many.__module__, Many.__name__ = "datasets.arrow_dataset", "Dataset"
    COMPUTED.clear()
    with applied() as found:
        assert same(plain, epochs(data))
    assert len(COMPUTED) == 6 + 2 and found.said, "once, and two to prove it"


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
    assert len(COMPUTED) == 12 + 4 + 2 + 1 and len(found.said) == 1


def test_a_program_with_a_data_set_for_each_epoch_keeps_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_datasets, "MOST_DATASETS", 2)
    with applied() as found:
        data = [Squares() for _ in range(3)]
        for each in data:
            list(DataLoader(each, batch_size=4))
        assert found.why == ["it has more than 2 data sets at once"]
        refs = [weakref.ref(each) for each in data]
        del data, each
        gc.collect()
        assert not any(ref() for ref in refs), "none is held"


def test_samples_of_a_data_set_that_is_made_anew_for_each_epoch_are_no_cost_that_comes_once(never: None) -> None:
    """They were put aside each time: a trial would have seen none of the work that every epoch does."""
    with applied() as found:
        for epoch in range(4):
            list(DataLoader(Squares(), batch_size=4))
            assert len(found.asides) == 3 + 1, "of the first, of which nobody knew"
            assert bool(found.why) == (epoch >= 2)
        assert set(found.why) == {"its data set (a Squares) is made anew before its samples come again"}
        stays = Squares(10)
        for _ in range(2):
            list(DataLoader(stays, batch_size=5))
    assert len(found.asides) == 3 + 1 + 2 + 1


def test_one_that_was_made_for_a_look_at_all_of_it_bars_none_that_stays(never: None) -> None:
    """For the mean of the pixels, say: the next one of its kind counts in full, and keeps."""
    with applied() as found:
        list(DataLoader(Squares(), batch_size=4))
        data, asides = Squares(), len(found.asides)
        COMPUTED.clear()
        for _ in range(3):
            list(DataLoader(data, batch_size=4))
    assert len(COMPUTED) == 12 + 2 and not found.why and len(found.asides) == asides


def test_a_first_batch_that_is_looked_at_bars_no_data_set_that_stays(never: None) -> None:
    with applied() as found:
        next(iter(DataLoader(Squares(), batch_size=4)))
        gc.collect()
        data = Squares()
        COMPUTED.clear()
        for _ in range(2):
            list(DataLoader(data, batch_size=4))
    assert len(COMPUTED) == 12 + 2 and not found.why


def test_what_a_change_between_epochs_makes_vain_is_put_aside_once(never: None) -> None:
    with applied() as found:
        data, counts = Squares(), []
        for epoch in range(4):
            data.factor = min(epoch, 1)
            list(DataLoader(data, batch_size=4))
            counts.append(len(found.asides))
    assert counts == [4, 4, 4, 4] and len(COMPUTED) == 2 * (2 + 12)


class Holding(Squares):
    """Holds something that it may change as it is used."""

    def __init__(self, thing: Any, use: Callable[[Any, int], Any]) -> None:
        super().__init__()
        self.thing, self.use = thing, use

    def __getitem__(self, index: int) -> Any:
        return index, self.use(self.thing, index)


@pytest.mark.parametrize(
    ("make", "use", "why"),
    [
        (lambda: np.random.default_rng(0), lambda thing, index: thing.random(), "cannot be looked at"),
        (lambda: random.Random(0), lambda thing, index: thing.random(), "cannot be looked at"),
        (lambda: torch.Generator(), lambda thing, index: torch.rand(1, generator=thing), "cannot be looked at"),
        (lambda: iter(range(99)), lambda thing, index: next(thing), "changes while it is used"),
        (lambda: (each for each in range(99)), lambda thing, index: next(thing), "cannot be looked at"),
        (lambda: list(range(99)), lambda thing, index: thing.pop(), "changes while it is used"),
        (lambda: [0], lambda thing, index: thing.append(0) or len(thing) <= 20, "changes while it is used"),
        (lambda: multiprocessing.Value("i", 1), lambda thing, index: thing.value, "cannot be looked at"),
        (lambda: (Path(__file__)).open(), lambda thing, index: index, "cannot be looked at"),
    ],
)  # fmt: skip
def test_who_has_a_state_of_its_own_is_left_as_it_is(make: Any, use: Any, why: str) -> None:
    """What the program's own computations leave of it, and nothing computed beside them."""
    plain = epochs(Holding(make(), use))
    with applied() as found:
        assert same(plain, epochs(Holding(make(), use)))
    assert len(found.why) == 1 and why in found.why[0] and not found.said


def test_a_map_of_a_file_that_is_written_between_epochs_begins_anew(tmp_path: Path, never: None) -> None:
    np.arange(12.0).tofile(tmp_path / "rows")
    data = Holding(np.memmap(tmp_path / "rows", dtype=np.float64, mode="r+"), lambda thing, index: float(thing[index]))
    loader = DataLoader(data, batch_size=12)
    with applied() as found:
        for times in (1, 2, 3):
            (_, values) = next(iter(loader))
            assert values.tolist() == [times * each for each in range(12)]
            data.thing[:] = (times + 1) * np.arange(12)
    assert found.said and not found.why


def test_a_data_set_that_is_changed_amid_an_epoch_ends_it_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "_after", lambda began: (0.0, 0.0, 0.0))
    data = Squares()
    loader = DataLoader(data, batch_size=4)
    with applied():
        list(loader)
        with pytest.raises(GobrrrError, match="changed during an epoch"):
            for _ in loader:
                data.factor += 1


def test_samples_that_come_twice_in_a_batch_are_objects_of_their_own(never: None) -> None:
    class Rows(Squares):
        def __getitem__(self, index: int) -> Any:
            return {"row": [index], "label": index}

    def pops(samples: list[Any]) -> Any:
        for sample in samples:
            sample["row"].append(-1)
        return [(sample.pop("label"), sample["row"]) for sample in samples]

    def drawn() -> Any:
        return epochs(Rows(), shuffle=False, batch_sampler=[[1, 1, 2], [2, 1, 1]], batch_size=1, collate_fn=pops)

    plain = drawn()
    with applied() as found:
        assert drawn() == plain
    assert found.said


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda x: (x, x), "lie in the same memory"),
        (lambda x: (x[:-1], x[1:]), "lie in the same memory"),
        (lambda x: (x.numpy(), x), "lie in the same memory"),
        (lambda x: x.numpy()[::-1], ""),
        (lambda x: (x[:2], x[2:]), ""),
        (lambda x: named(x), "attributes of their own"),
        (lambda x: frozen(x.numpy()), "may not be written"),
    ],
)
def test_what_a_copy_would_not_be_is_not_kept(make: Any, why: str, never: None) -> None:
    class Made(Squares):
        def __getitem__(self, index: int) -> Any:
            return make(torch.arange(4.0) + index)

    with applied() as found:
        epochs(Made(), collate_fn=list)
    assert why in found.why[0] if why else found.said and not found.why


def named(x: Any) -> Any:
    x.tag = "a row"
    return x


def frozen(x: Any) -> Any:
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("change", [3, 5, 9])
def test_a_change_amid_an_epoch_is_told_though_the_timed_look_comes_late(change: int, never: None) -> None:
    """A schedule by steps: kept samples of the old state were given after it, and no look came till the epoch's end."""
    data = Squares()
    data.power = 2  # type: ignore[attr-defined]

    def run() -> None:
        step = 0
        for _ in range(3):
            for _ in DataLoader(data, batch_size=3):
                step += 1
                data.power = 2 + (step > change)  # type: ignore[attr-defined]

    if change == 3:  # between two epochs of four batches: begun anew
        with applied() as found:
            run()
        assert not found.why
        return
    with applied(), pytest.raises(GobrrrError, match="changed during an epoch"):
        run()


def test_a_list_that_comes_twice_in_a_sample_stays_one(never: None) -> None:
    """Padded in place, as labels that are the inputs are."""

    class Texts(Squares):
        def __getitem__(self, index: int) -> Any:
            ids = [index, index + 1]
            return {"ids": ids, "labels": ids}

    def padded(samples: list[Any]) -> Any:
        for sample in samples:
            sample["ids"].append(0)
        return [sample["labels"] for sample in samples]

    plain = [batch for batch, _ in epochs(Texts(), 3, collate_fn=padded)[0]]
    with applied() as found:
        kept = [batch for batch, _ in epochs(Texts(), 3, collate_fn=padded)[0]]
    assert kept == plain and found.why == ["parts of its samples lie in the same memory"]


def test_a_kept_sample_may_be_resized_as_the_data_sets(never: None) -> None:
    class Rows(Squares):
        def __getitem__(self, index: int) -> Any:
            return torch.full((3,), float(index)), np.full(3, float(index))

    def wider(samples: list[Any]) -> Any:
        for tensor, array in samples:
            tensor.resize_(5)
            array.resize(5, refcheck=False)
        return [float(tensor[2]) for tensor, _ in samples]

    plain = [batch for batch, _ in epochs(Rows(), 3, collate_fn=wider)[0]]
    with applied() as found:
        assert [batch for batch, _ in epochs(Rows(), 3, collate_fn=wider)[0]] == plain
    assert found.said


def test_views_with_gaps_are_left_alone() -> None:
    """A copy without them is summed in another order."""

    class Cropped(Squares):
        def __getitem__(self, index: int) -> Any:
            return torch.full((4, 6), float(index))[:, :3]

    plain = epochs(Cropped())
    with applied() as found:
        assert same(plain, epochs(Cropped()))
    assert found.why == ["its samples are views with gaps in their memory"]


def test_a_fingerprint_that_a_wrapper_passes_on_hides_nothing() -> None:
    class Table:
        _fingerprint = "the same for ever"

    class Wrapper(Squares):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.hard = Table(), 0

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name == "table":
                raise AttributeError(name)
            return getattr(self.table, name)

        def __getitem__(self, index: int) -> Any:
            return index + 100 * self.hard

    def run() -> list[Any]:
        data, found = Wrapper(), []
        for _ in range(3):
            found += [batch.tolist() for batch in DataLoader(data, batch_size=6)]
            data.hard += 1
        return found

    plain = run()
    with applied():
        assert run() == plain


def test_who_is_changed_by_being_looked_at_is_not_looked_at() -> None:
    class Counts(Squares):
        asked = 0

        def __getstate__(self) -> Any:
            Counts.asked += 1
            return dict(vars(self))

    with applied() as found:
        epochs(Counts())
    assert Counts.asked == 0 and "changed by being looked at" not in found.said and len(found.why) == 1


def test_what_cannot_be_looked_at_is_left_alone_and_nobody_hears_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("not now")

    plain = epochs(Squares())
    monkeypatch.setattr(kept_samples, "digest", fails)
    with applied() as found:
        assert same(plain, epochs(Squares()))
    assert found.why == ["its data set cannot be looked at: RuntimeError"] and not found.said


def test_batches_that_are_named_by_an_iterator_are_left_alone() -> None:
    class Names:
        def __iter__(self) -> Iterator[Any]:
            return iter([map(int, "012"), map(int, "345")])

    with applied() as found:
        batches = [rows["label"].tolist() for rows in DataLoader(Squares(), batch_sampler=Names())]  # type: ignore[arg-type]
    assert batches == [[0, 1, 2], [3, 4, 5]] and found.why == ["its sampler gives a map, not a list, for each batch"]


def test_a_sample_that_draws_later_on_leaves_the_streams_as_the_program_has_them(always: None) -> None:
    """By what no look reaches: the computation that finds it out is nobody's draw."""

    class Later(Squares):
        def __getitem__(self, index: int) -> Any:
            return index, torch.rand(1).item() if "DRAWS" in os.environ else 0.5

    def run() -> list[Any]:
        os.environ.pop("DRAWS", None)
        torch.manual_seed(0)
        loader, found = DataLoader(Later(), batch_size=6, shuffle=True), []
        for epoch in range(3):
            found += [*loader]
            if epoch == 0:
                os.environ["DRAWS"] = "1"
        return found

    plain = run()
    with applied() as found:
        assert same(plain, run())
    os.environ.pop("DRAWS", None)
    assert "was another when it was computed again" in found.why[0]


def test_all_data_sets_share_one_room(monkeypatch: pytest.MonkeyPatch, never: None) -> None:
    size = sum(len(encode(Squares()[index])) for index in range(12))
    monkeypatch.setattr(cache, "memory_room", lambda: 2 * size + 1.0)
    with applied() as found:
        kept = [Squares() for _ in range(4)]
        for data in kept:
            epochs(data, 1)
    assert len(found.why) == 1 and "1.00 B may be taken" in found.why[0], "two have room"


def test_a_bit_generator_of_ones_own_choice_is_no_obstacle(never: None) -> None:
    plain = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(1))
        with applied() as found:
            list(DataLoader(Squares(), batch_size=12))
    finally:
        np.random.set_bit_generator(plain)
    assert found.said and not found.why


@pytest.mark.parametrize(("look", "kept"), [(1.0, True), (3.0, False)])
def test_a_look_may_take_a_tenth_of_what_an_epoch_took_before(
    look: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept epochs are so short that a tenth of them was no time to look: rows out of pandas were dropped again."""
    clock = [0.0]

    class Slow(Squares):
        def __getitem__(self, index: int) -> Any:
            clock[0] += 1.0
            return index

    def told(*_: Any, **__: Any) -> str:
        clock[0] += look
        return "as it was"

    monkeypatch.setattr(kept_samples.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(kept_samples.time, "perf_counter_ns", lambda: int(1e9 * clock[0]))
    monkeypatch.setattr(kept_samples, "digest", told)
    with applied() as found:
        data = Slow()
        for _ in range(5):
            list(DataLoader(data, batch_size=4))
    assert bool(found.why) != kept


def test_what_a_data_set_logs_comes_twice_for_some_samples_and_then_hardly_ever(never: None) -> None:
    data = Squares()
    with applied() as found:
        epochs(data, num=1)
        first = len(COMPUTED)
        epochs(data, num=1)
    assert found.said and first > len(data) > len(COMPUTED) - first
    assert "prints, logs or counts" in cache.ComputedOnce.unseen
