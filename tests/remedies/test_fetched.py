"""Loaders that workers must not read, since fetching changes what the program holds or has one place in a file; and the
ordinary ones that they may."""

from __future__ import annotations

import functools
import heapq
import io
import itertools
import multiprocessing
import os
import random
import resource
import sqlite3
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset  # noqa: E402

from gobrrr.remedies.loader import fetch_safety  # noqa: E402
from gobrrr.remedies.mechanism import forked_copy  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

COUNTED = {"samples": 0}


class Rows(Dataset):  # type: ignore[type-arg]
    """Sixteen of them; the others differ in what they do beside."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return torch.full((2,), float(index))


class Counting(Rows):
    seen = 0

    def __getitem__(self, index: int) -> Any:
        self.seen += 1
        return torch.full((2,), min(1.0, self.seen / 64))


class CountingInItsClass(Rows):
    seen = 0

    def __getitem__(self, index: int) -> Any:
        type(self).seen += 1
        return super().__getitem__(index)


class CountingElsewhere(Rows):
    def __getitem__(self, index: int) -> Any:
        COUNTED["samples"] += 1
        return super().__getitem__(index)


class Recording(Rows):
    def __init__(self) -> None:
        self.served: list[int] = []

    def __getitem__(self, index: int) -> Any:
        served = self.served
        served.append(index)
        return super().__getitem__(index)


class Seldom(Rows):
    """No batch that is looked at shows it."""

    level = 0

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            self.level = 1
        return super().__getitem__(index)


class AddsAt(Rows):
    counts = np.zeros(16)

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            np.add.at(self.counts, index, 1)
        return super().__getitem__(index)


class GivesOut(Rows):
    counts = np.zeros(16)

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            np.add(self.counts, 1, out=self.counts)
        return super().__getitem__(index)


class Pushes(Rows):
    heap: ClassVar[list[int]] = [3, 4]

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            heapq.heappush(self.heap, index)
        return super().__getitem__(index)


class AddsInPlace(Rows):
    sums = torch.zeros(16)

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            total = self.sums.index_add_(0, torch.tensor([1]), torch.ones(1)).sum()
            return total
        return super().__getitem__(index)


class Shuffles(Rows):
    order: ClassVar[list[int]] = [1, 2]

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            random.shuffle(self.order)
        return super().__getitem__(index)


class FillsByAFunction(Rows):
    sums = torch.zeros(16)

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            torch.nn.init.normal_(self.sums)
        return super().__getitem__(index)


class CopiesTo(Rows):
    counts = np.zeros(16)

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            np.copyto(dst=self.counts, src=np.ones(16))
        return super().__getitem__(index)


class GivesTwoOut(Rows):
    counts = np.zeros(16)

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            np.modf(np.ones(16), out=(np.zeros(16), self.counts))
        return super().__getitem__(index)


class ReadsAt(Rows):
    """Methods of its own that are called as functions that write."""

    offset = 3

    def at(self, offset: int) -> int:
        return offset

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            self.at(self.offset)
        return super().__getitem__(index)


class WritesIntoItsOwn(Rows):
    """Nothing that is there after the sample."""

    def __getitem__(self, index: int) -> Any:
        row, counts, heap = super().__getitem__(index).clone(), np.zeros(4), [3]
        if index > 1000:
            np.add.at(counts, 1, 1)
            np.add(counts, 1, out=counts)
            heapq.heappush(heap, 1)
            row.add_(1.0)
        return row


class Batches(Counting):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[each] for each in indices]


class Jitter:
    """A transform that is stronger with each sample."""

    strength = 0

    def __call__(self, row: Any) -> Any:
        self.strength += 1
        return row


class Transformed(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.held(super().__getitem__(index))


class Drawing(Rows):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + self.held.random()


class Stream(IterableDataset):  # type: ignore[type-arg]
    """Goes on where it stopped."""

    def __init__(self) -> None:
        self.pos = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.pos += 1
            yield torch.tensor([float(self.pos)])


class StreamOfAnother(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        yield from self.rows


class StreamOfALateIterator(IterableDataset):  # type: ignore[type-arg]
    rows: Any = None

    def __iter__(self) -> Iterator[Any]:
        if self.rows is None:
            self.rows = iter(range(100))
        yield from self.rows


class Sampler:
    """One that goes on where it stopped."""

    pos = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.pos += 1
            yield self.pos % 16


class DrawingSampler:
    """What it draws early it would have drawn anyway."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        for _ in range(16):
            yield int(self.own.integers(16))


def counting_collate(rows: Any) -> Any:
    COUNTED["samples"] += len(rows)
    return torch.stack(rows)


def collate(rows: Any, scale: float = 1.0) -> Any:
    kept: list[Any] = []
    kept.extend(rows)
    return torch.stack(kept) * scale


CHANGING: dict[str, Callable[[], tuple[Any, ...]]] = {
    "an attribute": lambda: (Counting(),),
    "an attribute of one in a Subset": lambda: (Subset(Counting(), [1, 2, 3]),),
    "an attribute of its class": lambda: (CountingInItsClass(),),
    "a global": lambda: (CountingElsewhere(),),
    "a list": lambda: (Recording(),),
    "seldom": lambda: (Seldom(),),
    "seldom, by a ufunc's at": lambda: (AddsAt(),),
    "seldom, as out": lambda: (GivesOut(),),
    "seldom, onto a heap": lambda: (Pushes(),),
    "seldom, a tensor in place": lambda: (AddsInPlace(),),
    "seldom, an order": lambda: (Shuffles(),),
    "seldom, by a function in place": lambda: (FillsByAFunction(),),
    "seldom, a destination": lambda: (CopiesTo(),),
    "seldom, one of two outputs": lambda: (GivesTwoOut(),),
    "whole batches": lambda: (Batches(),),
    "a transform": lambda: (Transformed(Jitter()),),
    "a transform in a partial": lambda: (Transformed(functools.partial(Jitter())),),
    "a generator of its own": lambda: (Drawing(random.Random(0)),),
    "a NumPy generator of its own": lambda: (Drawing(np.random.default_rng(0)),),
    "a list's own method": lambda: (Rows([].append),),
    "a collate function": lambda: (Rows(), counting_collate),
    "a sampler": lambda: (Rows(), None, Sampler()),
    "a stream that goes on": lambda: (Stream(),),
    "a stream of an iterator": lambda: (StreamOfAnother(iter(range(100))),),
    "a stream of a late iterator": lambda: (StreamOfALateIterator(),),
}


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.capture.steps.vitals.cores", lambda: 2)


def made(remedy: str, data: Any, collate_fn: Any = None, sampler: Any = None) -> tuple[Any, str, list[Any]]:
    """A loader with the remedy, why it was left alone, and its first batches where it is read as far as those."""
    why: list[str] = []
    seams = Seams(declined=lambda name, reason: why.append(reason))
    install(seams, [remedy])
    try:
        loader: Any = DataLoader(data, 4, collate_fn=collate_fn, sampler=sampler)
        return loader, " ".join(why), list(itertools.islice(loader, 3))
    finally:
        seams.remove()


@pytest.mark.parametrize("what", CHANGING)
@pytest.mark.parametrize("remedy", ["one_worker", "loader_workers"])
def test_fetching_that_changes_what_the_program_holds_is_left_to_it(remedy: str, what: str) -> None:
    loader, why, _ = made(remedy, *CHANGING[what]())
    assert not loader.num_workers and why


def test_a_stream_that_is_left_early_goes_on_where_it_was() -> None:
    data = Stream()
    loader, why, first = made("one_worker", data)
    assert data.pos == 12 and first[0].flatten().tolist() == [1, 2, 3, 4], "looking has read nothing of it"
    assert next(iter(loader)).flatten().tolist() == [13, 14, 15, 16] and "Stream" in why


def test_a_curriculum_in_the_samples_moves_on() -> None:
    data = Counting()
    loader, _, _ = made("one_worker", data)
    assert data.seen == 12 and next(iter(loader)).max().item() == 16 / 64


def test_workers_that_count_begin_anew_with_each_epoch() -> None:
    """As without the remedy: each epoch's have a copy of the program's data set."""

    def epochs(*names: str) -> list[float]:
        seams = Seams()
        install(seams, names)
        try:
            loader: Any = DataLoader(Counting(), 4, num_workers=1)
            return [torch.cat(list(loader)).max().item() for _ in range(2)]
        finally:
            seams.remove()

    assert epochs("persistent_workers") == epochs() == [0.25, 0.25]


class Opening(Rows):
    """Opens its file with the first sample: each worker has one of its own."""

    file: Any = None

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = self.path.open("rb")
        self.file.seek(index)
        return torch.tensor(self.file.read(1)[0])


class OpeningInAMethod(Opening):
    """As people read HDF5."""

    def _open(self) -> None:
        self.file = self.path.open("rb")
        self.length = 16

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self._open()
        return super().__getitem__(index)


class OpeningAgain(OpeningInAMethod):
    """Its method is called for more than what is missing."""

    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            self._open()
        return super().__getitem__(index)


class CountingWhereItOpens(OpeningInAMethod):
    opened = 0

    def _open(self) -> None:
        self.opened += 1
        super()._open()


class SlowlyOpening(Opening):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.1)
        return super().__getitem__(index)


class CountingEpochs:
    """A sampler as people write it."""

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(range(16))


class Source:
    """A class of the program's that keeps one."""

    def __init__(self, file: Any) -> None:
        self.inside = [{"file": file}]


HELD: dict[str, Callable[[Path], Any]] = {
    "a file": lambda path: path.open("rb"),
    "one without a buffer": lambda path: path.open("rb", buffering=0),
    "a text": lambda path: path.open(),
    "a temporary one": lambda path: tempfile.NamedTemporaryFile(),
    "one deep inside": lambda path: Source(path.open("rb")),
    "a database": lambda path: sqlite3.connect(path.with_name("base")),
    "an archive": lambda path: zipfile.ZipFile(path.with_name("archive"), "w"),
    "NumPy's archive": lambda path: np.load(path.with_name("arrays.npz")),
}


@pytest.mark.parametrize("what", HELD)
@pytest.mark.parametrize("remedy", ["one_worker", "loader_workers"])
def test_workers_share_no_open_file(remedy: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(range(16)))
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3))
    loader, why, _ = made(remedy, Rows(HELD[what](path)))
    assert not loader.num_workers and "open file" in why


def test_a_file_that_is_opened_with_the_first_sample_is_each_workers_own(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(range(16)))
    closed = path.open("rb")
    closed.close()
    for data in (Opening(path), OpeningInAMethod(path), Rows(closed), Rows(io.BytesIO(b"rows"))):
        loader, why, first = made("loader_workers", data)
        assert (loader.num_workers, why, len(first)) == (2, "", 3)


@pytest.mark.parametrize("kind", [OpeningAgain, CountingWhereItOpens])
def test_a_method_that_opens_may_write_nothing_else_nor_be_called_for_more(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(range(16)))
    loader, why, _ = made("one_worker", kind(tmp_path / "rows"))
    assert not loader.num_workers and "_open writes" in why


@pytest.mark.parametrize("patience", [1.1, 0.6])
def test_slow_batches_are_judged_by_as_many_as_are_in_time(
    patience: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes 0.4 s: that the file was opened once is seen with two, and with one it may be a change."""
    (tmp_path / "rows").write_bytes(bytes(range(16)))
    for module in (forked_copy, fetch_safety):
        monkeypatch.setattr(module, "PATIENCE_S", patience)
    ask = fetch_safety.Fetched(lambda ns: None).why_not
    why = ask({"dataset": SlowlyOpening(tmp_path / "rows"), "batch_size": 4})
    assert why == "" if patience > 1 else "changes what its SlowlyOpening holds" in why


def test_a_sampler_may_count_its_epochs() -> None:
    """It never runs in a worker."""
    loader, why, first = made("one_worker", Rows(), None, CountingEpochs())
    assert (loader.num_workers, why, len(first)) == (1, "", 3)


class InWhichProcess(Opening):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor([super().__getitem__(index), os.getpid()])


def test_a_file_that_the_program_opens_later_is_not_shared(tmp_path: Path) -> None:
    """Workers that are there already have their own; those that are forked now would not."""
    path = tmp_path / "rows"
    path.write_bytes(bytes(range(16)))
    data, seams = InWhichProcess(path), Seams()
    install(seams, ["loader_workers"])
    try:
        loader: Any = DataLoader(data, 4)
        first = torch.cat(list(loader))
        data[0]
        second = torch.cat(list(loader))
    finally:
        seams.remove()
    assert loader.num_workers == 2 and torch.equal(first[:, 0], second[:, 0])
    assert os.getpid() not in first[:, 1] and second[:, 1].unique().tolist() == [os.getpid()]


class CountingForAll(Rows):
    def __getitem__(self, index: int) -> Any:
        seen = self.held
        if isinstance(seen, torch.Tensor):
            seen += 1
        else:
            seen.value += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("make", [lambda: multiprocessing.Value("i", 0), lambda: torch.zeros(1).share_memory_()])
def test_looking_writes_nothing_into_memory_that_processes_share(make: Callable[[], Any]) -> None:
    data = CountingForAll(make())
    loader, why, first = made("one_worker", data)
    assert not loader.num_workers and "share" in why
    assert int(getattr(data.held, "value", data.held)) == 12 == 4 * len(first)


def test_memory_that_processes_share_and_nobody_writes_to_is_fetched_by_a_worker() -> None:
    loader, why, _ = made("one_worker", TensorDataset(torch.zeros(16, 2).share_memory_()))
    assert loader.num_workers == 1 and not why


def pandas_rows(tmp_path: Path) -> Any:
    pandas = pytest.importorskip("pandas")

    class Table(Rows):
        def __getitem__(self, index: int) -> Any:
            row = self.held.iloc[index]
            return torch.tensor([float(row["x"]), float(row["y"])])

    return Table(pandas.DataFrame({"x": range(16), "y": range(16)}))


def hugging_face(tmp_path: Path) -> Any:
    """Its table is a file that is mapped into memory."""
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"x": list(range(16))}).save_to_disk(tmp_path / "saved")
    return datasets.load_from_disk(tmp_path / "saved").with_format("torch")


def mapped(tmp_path: Path) -> Any:
    np.save(tmp_path / "rows.npy", np.zeros((16, 2)))
    array = np.load(tmp_path / "rows.npy", mmap_mode="r")
    return Transformed(lambda row: row + torch.tensor(array[0]))


def scale(row: Any, by: float) -> Any:
    return row * by + random.random() + torch.rand(1) + np.random.rand()


class Standardises(Rows):
    """Reads what it holds, and writes into a copy."""

    mean = torch.zeros(1)

    def __getitem__(self, index: int) -> Any:
        row = torch.full((1,), float(index)).sub_(self.mean)
        row.mul_(self.mean + 1)
        return row


class CountingBeneath(Rows):
    count = 0

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        return super().__getitem__(index)


class HidesWhatCounts(CountingBeneath):
    """What is beneath is never called."""

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(1)


class CallsWhatCounts(CountingBeneath):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + 1 if index > 1000 else torch.zeros(1)


def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


class CallsWhatCountsDecorated(CountingBeneath):
    @quietly
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + 1 if index > 1000 else torch.zeros(1)


Beneath = CountingBeneath


class CallsWhatCountsByAnotherName(CountingBeneath):
    def __getitem__(self, index: int) -> Any:
        return Beneath.__getitem__(self, index) + 1 if index > 1000 else torch.zeros(1)


class CountsInAMethodDecorated(Rows):
    count = 0

    def step(self) -> None:
        self.count += 1

    @quietly
    def __getitem__(self, index: int) -> Any:
        if index > 1000:
            self.step()
        return torch.zeros(1)


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, row: Any) -> Any:
        for transform in self.transforms:
            row = transform(row)
        return row


ORDINARY: dict[str, Callable[[Path], Any]] = {
    "tensors": lambda path: TensorDataset(torch.zeros(16, 2)),
    "a list of tuples": lambda path: [(torch.zeros(2), each) for each in range(16)],
    "a class": lambda path: Rows(),
    "one that writes into its own": lambda path: WritesIntoItsOwn(),
    "one that writes what it holds into its own": lambda path: Standardises(),
    "one that hides a method": lambda path: HidesWhatCounts(),
    "one with methods that are called so": lambda path: ReadsAt(),
    "a class with many samples": lambda path: Rows([(torch.zeros(1), str(each)) for each in range(20_000)]),
    "two of them": lambda path: ConcatDataset([Rows(), Rows()]),
    "a part": lambda path: Subset(Rows(), range(14)),
    "transforms that draw": lambda path: Transformed(Compose(functools.partial(scale, by=2.0), torch.nn.ReLU())),
    "a file in memory": mapped,
    "pandas": pandas_rows,
    "Hugging Face": hugging_face,
}


@pytest.mark.parametrize("kind", [CallsWhatCounts, CallsWhatCountsDecorated, CallsWhatCountsByAnotherName])
def test_a_method_of_a_base_that_is_called_is_read(kind: Any) -> None:
    loader, why, _ = made("one_worker", kind())
    assert not loader.num_workers and "CountingBeneath.__getitem__" in why


def test_what_a_decorated_method_calls_is_read() -> None:
    loader, why, _ = made("one_worker", CountsInAMethodDecorated())
    assert not loader.num_workers and "CountsInAMethodDecorated.step" in why


@pytest.mark.parametrize("what", ORDINARY)
def test_ordinary_data_sets_have_workers(what: str, tmp_path: Path) -> None:
    for remedy, workers in (("one_worker", 1), ("loader_workers", 2)):
        loader, why, first = made(remedy, ORDINARY[what](tmp_path))
        assert (loader.num_workers, why, len(first)) == (workers, "", 3)


class Recursing:
    """Its attributes are looked up in one that it has not while it is unpickled."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows, name)


UNSENT: dict[str, Callable[[], tuple[Any, ...]]] = {
    "a function without a name": lambda: (Rows(), lambda rows: defaultdict(lambda: 0, x=torch.stack(rows))),
    "the keys of a dict": lambda: (Rows(), lambda rows: {"x": rows}.keys()),
    "what cannot be read back": lambda: (Rows(), Recursing),
    "a tensor with a graph": lambda: (Rows(), lambda rows: torch.stack(rows).requires_grad_() * 2),
    "parameters of a data set of torch's": lambda: (TensorDataset(torch.zeros(16, 2, requires_grad=True)),),
}


@pytest.mark.parametrize("what", UNSENT)
def test_batches_that_cannot_be_sent_are_fetched_in_the_program(what: str) -> None:
    """A worker's queue only prints it, and the program would wait for ever."""
    loader, why, first = made("one_worker", *UNSENT[what]())
    assert (loader.num_workers, len(first)) == (0, 3) and "could not be fetched in another process and sent" in why


def test_batches_of_more_tensors_than_a_worker_may_have_open_are_fetched_in_the_program() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        few, many = (made("one_worker", Rows(), lambda rows, num=num: [torch.zeros(1) for _ in range(num)])
                     for num in (40, 80))  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (few[0].num_workers, len(few[2])) == (1, 3) and (many[0].num_workers, len(many[2])) == (0, 3)
    assert "TooManyTensors" in many[1]


def _sparse(rows: Any) -> Any:
    return torch.stack(rows).to_sparse()


@pytest.mark.parametrize("collate_fn", [_sparse, set, lambda rows: torch.nn.Parameter(torch.stack(rows))])
def test_batches_of_other_kinds_are_sent(collate_fn: Any) -> None:
    assert made("one_worker", Rows(), collate_fn)[0].num_workers == 1


class Shy:
    """One that fails where it is looked at."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not for you")


def test_what_cannot_be_looked_at_is_left_alone() -> None:
    loader, why, _ = made("one_worker", Rows(Shy()))
    assert not loader.num_workers and "cannot be looked at: RuntimeError" in why


@pytest.mark.parametrize(
    "held",
    [
        torch.zeros(3, 3).to_sparse(),
        torch.zeros(3, device="meta"),
        torch.nested.nested_tensor([torch.zeros(2)]),
        torch.nn.Linear(3, 3),
    ],
    ids=["sparse", "meta", "nested", "module"],
)
def test_tensors_of_any_kind_may_be_held(held: Any) -> None:
    from gobrrr.remedies.loader.fetch_safety import Fetched

    assert not Fetched(lambda ns: None).why_not({"dataset": Rows(held)})


def test_ordinary_streams_and_collate_functions_have_workers() -> None:
    assert made("one_worker", StreamOfAnother(range(100)))[0].num_workers == 1
    assert made("one_worker", Rows(), functools.partial(collate, scale=2.0))[0].num_workers == 1
    assert made("one_worker", Rows(), None, DrawingSampler())[0].num_workers == 1


def test_the_look_draws_prints_and_fetches_nothing_in_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    def loud(row: Any) -> Any:
        print("fetched")
        return row + torch.rand(1)

    torch.manual_seed(0)
    before = torch.get_rng_state()
    seams = Seams()
    install(seams, ["one_worker"])
    try:
        loader: Any = DataLoader(Transformed(loud), 4, shuffle=True)
    finally:
        seams.remove()
    assert loader.num_workers == 1 and torch.equal(before, torch.get_rng_state())
    assert not seen and not capfd.readouterr().out
