"""Which data sets are taken whole, that the batches are the same bit for bit, and who is left alone."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate  # noqa: E402

from gobrrr.remedies.loader.whole_batches import Collate, Rows, _same_bits, takes_many  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

X, Y = torch.randn(50, 4), torch.arange(50)


@contextlib.contextmanager
def applied(name: str = "batched_fetch", why: list[str] | None = None) -> Iterator[list[str]]:
    said: list[str] = []
    reasons = why if why is not None else []
    seams = Seams(lambda remedy, detail: said.append(detail), declined=lambda remedy, detail: reasons.append(detail))
    install(seams, [name])
    try:
        yield said
    finally:
        seams.remove()


class Pairs(Dataset):
    """Rows of arrays, and nothing else."""

    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: Any) -> Any:
        return self.x[index], self.y[index]


class Named(Pairs):
    def __getitem__(self, i: Any) -> Any:
        """Of row i."""
        row, label = self.x[i], self.y[i]
        return {"row": row, "label": label}


class Single(Pairs):
    def __getitem__(self, i: Any) -> Any:
        return self.x[i]


class Scaled(Pairs):
    def __getitem__(self, i: Any) -> Any:
        return self.x[i] * 2, self.y[i]


def blanked(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(self: Any, i: Any) -> Any:
        return tuple(torch.nan_to_num(each) for each in function(self, i))

    return wrapped


class Decorated(Pairs):
    """Its source is that of an index, and what runs is another function."""

    @blanked
    def __getitem__(self, i: Any) -> Any:
        return self.x[i], self.y[i]


class Replaced(Pairs):
    """As a class decorator leaves it."""

    __getitem__ = blanked(Pairs.__getitem__)


class Made(Pairs):
    """Its array is made anew at each look."""

    @property
    def z(self) -> torch.Tensor:
        """Other numbers."""
        return torch.rand(50, 3)

    def __getitem__(self, i: Any) -> Any:
        return self.z[i], self.y[i]


class Odd(torch.Tensor):
    """Indexes in a way of its own."""


class Called(Pairs):
    def __getitem__(self, i: Any) -> Any:
        return torch.relu(self.x[i])


class Counting(Pairs):
    def __getitem__(self, i: Any) -> Any:
        self.last = self.x[i]
        return self.last


class Neighbour(Pairs):
    def __getitem__(self, i: Any) -> Any:
        return self.x[i], self.x[i - 1]


class WithIndex(Pairs):
    def __getitem__(self, i: Any) -> Any:
        return self.x[i], i


class Constant(Pairs):
    def __getitem__(self, i: Any) -> Any:
        return self.x[i], "cat"


class Own(Pairs):
    def __getitems__(self, indices: Any) -> Any:
        return [self[i] for i in indices]


ARRAYS = Pairs(np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32), np.arange(50))
DATA = [
    TensorDataset(X, Y), TensorDataset(X), Subset(TensorDataset(X, Y), range(7, 30)), Pairs(), ARRAYS, Named(),
    Single(), Subset(Subset(Pairs(), range(3, 40)), [5, 3, 9, 9]), Pairs(X.half(), Y.bool()),
    Pairs(y=np.linspace(0, 1, 50)), WithIndex(), Pairs(np.ones((3, 4, 50)).T), Pairs(np.ones((1, 4, 50)).T),
    Pairs(np.ones((1, 50)).T), Pairs(torch.ones(50, 1, 4, 4).to(memory_format=torch.channels_last)),
]  # fmt: skip


def batches(data: Any, **fields: Any) -> list[Any]:
    torch.manual_seed(0)
    return list(DataLoader(data, batch_size=8, **{"shuffle": True, **fields}))


@pytest.mark.parametrize("data", DATA, ids=lambda data: type(data).__name__)
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_the_same_bit_for_bit(data: Any, workers: int) -> None:
    expected = batches(data)
    with applied() as said:
        found = batches(data, num_workers=workers)
        assert isinstance(DataLoader(data).collate_fn, Collate)
    assert str(found) == str(expected) and pickle.dumps(default_collate(found[:1])) is not None
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True, check_stride=True)
    assert said == (["in the loader's workers"] if workers else [f"{min(8, len(data))} rows in one"])
    assert DataLoader(data).collate_fn is default_collate and str(batches(data)) == str(expected)


def test_rows_are_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    plain = TensorDataset.__getitem__

    def counted(self: Any, index: Any) -> Any:
        taken.append(index)
        return plain(self, index)

    data = TensorDataset(X, Y)
    with applied():
        loader = iter(DataLoader(data, batch_size=10))
        next(loader)
        monkeypatch.setattr(TensorDataset, "__getitem__", counted)
        next(loader)
    (indices,) = taken
    assert indices.tolist() == list(range(10, 20))


@pytest.mark.parametrize("data", [
    Scaled(), Called(), Decorated(), Replaced(), Made(), Pairs(X.as_subclass(Odd)),
    Counting(), Neighbour(), Own(), Pairs(X.tolist()), Pairs(X.to_sparse()),
    Pairs(torch.tensor(1.0)),
    Pairs(np.array(["a"] * 50)), Subset(Called(), range(9)), [1, 2, 3],
], ids=lambda data: type(data).__name__)  # fmt: skip
def test_what_does_more_than_index_or_is_no_array_is_left_alone(data: Any) -> None:
    assert not takes_many(data)
    why: list[str] = []
    with applied(why=why) as said:
        assert DataLoader(data).collate_fn is default_collate and not said
    inner = data.dataset if isinstance(data, Subset) else data
    assert why == [f"its data set (a {type(inner).__name__}) may do more than index arrays in memory"]


def test_what_turns_out_not_to_be_the_same_is_fetched_row_by_row() -> None:
    assert takes_many(Constant())
    why: list[str] = []
    with applied(why=why) as said:
        found = batches(Constant(), shuffle=False)
    assert "not the same bit for bit" in why[0]
    assert not said and torch.equal(found[1][0], X[8:16]) and tuple(found[1][1]) == ("cat",) * 8


def test_missing_values_are_the_same_as_themselves() -> None:
    x = torch.tensor([[1.0, float("nan")], [-0.0, 2.0]])
    with applied() as said:
        (found,) = DataLoader(TensorDataset(x), batch_size=2)
    assert said and torch.equal(found[0].view(torch.int32), x.view(torch.int32))


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (0, 2)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float64])
def test_bits_are_compared_however_a_tensor_lies(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    plain = torch.ones(shape, dtype=dtype)
    odd = torch.empty_strided(shape, (7,) * len(shape), dtype=dtype).copy_(plain)
    assert _same_bits(plain, odd) and not _same_bits(plain, plain.to(torch.complex128))
    assert _same_bits(plain, odd * 0) == (plain.numel() == 0) and not _same_bits(plain, plain[None])


class Twice(Pairs):
    def __getitem__(self, i: Any) -> Any:
        row = self.x[i]
        return row, row


@pytest.mark.parametrize("x", [X, X.numpy()])
def test_what_a_sample_holds_twice_is_two_tensors(x: Any) -> None:
    with applied() as said:
        for given, target in DataLoader(Twice(x), 10):
            assert torch.equal(given, target)
            given.add_(1)
            assert torch.equal(given, target + 1)
    assert said


def another_class(data: Any) -> None:
    data.__class__ = Scaled


def another_method(data: Any) -> None:
    type(data).__getitem__ = Scaled.__getitem__  # type: ignore[method-assign]


def one_that_draws(data: Any) -> None:
    data.__class__ = Noisy


class Many(Pairs):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(-self.x[i], self.y[i]) for i in indices]


def one_that_gives_many(data: Any) -> None:
    data.__class__ = Many


def another_column(data: Any) -> None:
    data.x = list(data.x)


def a_longer_column(data: Any) -> None:
    data.x = data.x + 7


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        (another_class, False),
        (another_method, False),
        (another_column, False),
        (a_longer_column, True),
        (one_that_draws, False),
        (one_that_gives_many, False),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_data_set_that_becomes_another_is_asked_anew(change: Any, stays: bool, first: bool) -> None:
    def both() -> list[Any]:
        torch.manual_seed(0)
        data = type("Own", (Pairs,), {"__getitem__": Pairs.__getitem__})()
        loader = DataLoader(data, 10)
        found = list(loader) if first else []
        change(data)
        return [each for batch in (*found, *loader) for each in batch]

    plain, why = both(), list[str]()
    with applied(why=why) as said:
        found = both()
    assert bool(said) == (first or stays) and bool(why) != stays
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, plain, strict=True))


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(X)


def test_loaders_that_put_together_otherwise_are_left_alone() -> None:
    with applied() as said:
        assert DataLoader(TensorDataset(X), batch_size=None).collate_fn is not default_collate
        assert len(list(DataLoader(TensorDataset(X), 10, False, None, None, 0, list))) == 5
        assert len(list(DataLoader(Stream(), 10))) == 5
        assert not said
        with pytest.raises(TypeError, match="multiple values"):
            DataLoader(TensorDataset(X), 10, batch_size=10)
    assert len(Rows([1, 2, 3], [2, 0])) == 2 and list(Rows([1, 2, 3], [2, 0])) == [3, 1]


def test_a_loader_that_somebody_else_has_wrapped_is_made_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = DataLoader.__init__

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)

    monkeypatch.setattr(DataLoader, "__init__", wrapped)
    with applied() as said:
        assert len(list(DataLoader(TensorDataset(X), 10))) == 5
        assert [len(rows[0]) for rows in DataLoader(dataset=TensorDataset(X), batch_size=25)] == [25, 25]
    assert said == ["25 rows in one"]


def test_a_loaders_arguments_can_be_looked_at() -> None:
    plain = inspect.signature(DataLoader.__init__)
    with applied():
        assert inspect.signature(DataLoader.__init__) == plain


class Noisy(Pairs):
    """Draws for each row."""

    def __getitem__(self, i: Any) -> Any:
        return self.x[i] * (torch.rand(()) < 0.5), self.y[i]


def test_a_collate_function_that_another_loader_gets_says_nothing_of_its_data_set() -> None:
    def drawn() -> list[Any]:
        torch.manual_seed(0)
        first = DataLoader(Pairs(), 10)
        rows = [*first, *DataLoader(Noisy(), 10, collate_fn=first.collate_fn)]
        return [row.tolist() for batch in rows for row in batch]

    plain, why = drawn(), list[str]()
    with applied(why=why) as said:
        assert drawn() == plain and said == ["10 rows in one"] and "a Noisy" in why[0]


def test_a_collate_function_takes_rows_of_its_own_data_set_alone() -> None:
    """A fetcher that was made by hand, in which no remedy had a say."""
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    with applied():
        first = DataLoader(Pairs(), 10)
        list(first)
        torch.manual_seed(0)
        found = _MapDatasetFetcher(Noisy(), True, first.collate_fn, False).fetch([*range(10)])  # type: ignore[no-untyped-call]
        torch.manual_seed(0)
        assert torch.equal(found[0], default_collate([Noisy()[each] for each in range(10)])[0])


def test_a_loader_made_like_another_is_fetched_from_in_batches_too() -> None:
    with applied() as said:
        first = DataLoader(Pairs(), 10)
        assert len(list(DataLoader(first.dataset, 10, collate_fn=first.collate_fn))) == 5 and said == ["10 rows in one"]


def test_a_stream_given_in_the_first_place_gets_no_workers() -> None:
    """Each worker would read all of it."""
    why: list[str] = []
    with applied("loader_workers", why) as said:
        assert DataLoader(Stream(), 10).num_workers == 0 and not said
        assert why == ["each worker would read the whole of a stream"]
