"""Batches of like length: the same samples, the same draws, less padding; and which loaders keep their order."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import random
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.nn.utils.rnn import pad_sequence  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Subset  # noqa: E402

from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from gobrrr.remedies.padding import buckets  # noqa: E402
from gobrrr.remedies.padding.buckets import bucketed, sample_lengths  # noqa: E402
from gobrrr.remedies.registry import remedy  # noqa: E402
from gobrrr.rules.model.finding import Finding, Quantity, Saving  # noqa: E402
from gobrrr.rules.verdict.report import Report, Step, Verdict  # noqa: E402
from gobrrr.trial.race.referee import LiveReferee, Program  # noqa: E402

LENGTHS = np.clip(np.random.RandomState(0).lognormal(3.0, 0.9, 403), 2, 256).astype(int).tolist()
DATA = [{"input_ids": torch.arange(1, length + 1), "at": at} for at, length in enumerate(LENGTHS)]


def pads(samples: list[Any]) -> dict[str, Any]:
    """To the longest of the batch."""
    ids = pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "at": torch.tensor([s["at"] for s in samples])}


def to_the_cap(samples: list[Any]) -> dict[str, Any]:
    batch = pads(samples)
    more = (0, 256 - batch["input_ids"].shape[1])
    return {name: torch.nn.functional.pad(x, more) if x.dim() == 2 else x for name, x in batch.items()}


@contextlib.contextmanager
def applied(*names: str, declined: list[str] | None = None) -> Iterator[list[str]]:
    said: list[str] = []
    why = declined if declined is not None else []
    seams = Seams(lambda _, detail: said.append(detail), declined=lambda _, reason: why.append(reason))
    install(seams, names)
    try:
        yield said
    finally:
        seams.remove()


def epochs(number: int = 2, stop: int = 10_000, **given_: Any) -> list[Any]:
    """Of each epoch: samples in order, cells, batches' sizes, and where all random streams stand after it."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    generator = torch.Generator().manual_seed(5) if given_.pop("own", False) else None
    loader = DataLoader(
        given_.pop("data", DATA),  # type: ignore[arg-type]
        **{"batch_size": 8, "shuffle": True, "collate_fn": pads, "generator": generator, **given_},
    )
    found = []
    for _ in range(number):
        at, cells, sizes = [], 0, []
        for batch in itertools.islice(loader, stop):
            at += batch["at"].tolist()
            cells += batch["input_ids"].numel()
            sizes.append(len(batch["at"]))
        draws = [torch.rand(()).item(), random.random(), np.random.rand()]
        found.append((at, cells, sizes, [*draws, torch.rand((), generator=generator).item()]))
    return found


KINDS = [
    {}, {"own": True}, {"drop_last": True}, {"own": True, "drop_last": True}, {"num_workers": 1}, {"batch_size": 13},
    {"data": DATA[:400]}, {"num_workers": 1, "persistent_workers": True},
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_has_the_same_samples_in_fewer_cells_and_leaves_the_same_random_states(kind: dict[str, Any]) -> None:
    plain = epochs(**kind)
    with applied("bucketing") as said:
        found = epochs(**kind)
    assert len(said) == 1 and "of what is computed on is no padding" in said[0]
    for (at, cells, sizes, draws), (plain_at, plain_cells, plain_sizes, plain_draws) in zip(found, plain, strict=True):
        assert sorted(at) == sorted(plain_at) and at != plain_at
        assert sizes == plain_sizes, "the batch that is not full is the last one"
        assert cells < 0.6 * plain_cells
        assert draws == plain_draws
    assert found[0][0] != found[1][0], "another order each epoch"
    assert epochs(**kind) == plain, "taken away again"


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stop", [9, 51])
def test_an_epoch_that_is_left_early_leaves_the_same_random_states(own: bool, stop: int) -> None:
    """Also with its last batch, after which nobody asks for another."""
    plain = epochs(stop=stop, own=own)
    with applied("bucketing"):
        found = epochs(stop=stop, own=own)
    assert [each[3] for each in found] == [each[3] for each in plain]


@settings(deadline=None)
@given(st.lists(st.integers(0, 90), min_size=2, max_size=120), st.integers(1, 12), st.booleans(), st.integers(0, 9))
def test_no_sample_is_lost_or_repeated(lengths: list[int], batch_size: int, drop_last: bool, seed: int) -> None:
    def sampler() -> Any:
        drawn = RandomSampler(lengths, generator=torch.Generator().manual_seed(seed))
        return BatchSampler(drawn, batch_size, drop_last)

    plain, found = list(sampler()), list(bucketed(sampler(), np.array(lengths)))
    assert list(map(len, found)) == list(map(len, plain))
    assert sorted(at for batch in found for at in batch) == sorted(at for batch in plain for at in batch)


def test_a_data_set_that_has_grown_keeps_its_order() -> None:
    lengths = [1] * 20
    torch.manual_seed(0)
    plain = list(BatchSampler(RandomSampler(lengths), 4, False))
    torch.manual_seed(0)
    assert list(bucketed(BatchSampler(RandomSampler(lengths), 4, False), np.ones(19, int))) == plain


def test_every_epochs_batches_come_in_another_order() -> None:
    """Their lengths, batch after batch: not the same order of short and long ones each time."""
    lengths = np.arange(1, 401)
    torch.manual_seed(0)
    epochs_ = [
        [int(lengths[batch].max()) for batch in bucketed(BatchSampler(RandomSampler(lengths), 8, False), lengths)]
        for _ in range(2)
    ]
    ranks = [np.argsort(np.argsort(each)) for each in epochs_]
    assert abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) < 0.5


def test_a_column_of_something_else_is_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(buckets, "sample_lengths", lambda data: np.array([-1, *([5] * (len(data) - 1))]))
    with applied("bucketing", declined=reasons) as said:
        epochs(number=1)
    assert not said and "are not known" in reasons[0]


class Index(Dataset):
    """Does nothing but index."""

    def __init__(self) -> None:
        self.tokens, self.at = [sample["input_ids"] for sample in DATA], list(range(len(DATA)))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> Any:
        return {"input_ids": self.tokens[i], "at": self.at[i]}


class Computes(Index):
    """As one that tokenises; notes in the process that asks it how often it was."""

    def __init__(self, *held: Any) -> None:
        super().__init__()
        self.held = held

    def __getitem__(self, i: int) -> Any:
        LOG.info(i)
        return {"input_ids": self.tokens[i].clone(), "at": self.at[i]}


LOG = logging.getLogger("bucketed")


class Draws(Index):
    def __getitem__(self, i: int) -> Any:
        return {"input_ids": self.tokens[i][: random.randint(1, 500)], "at": self.at[i]}


def test_samples_that_are_computed_are_computed_once_more_in_a_copy(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bucketed"):
        plain = epochs(data=Computes())
        asked = sorted(record.msg for record in caplog.records)
        caplog.clear()
        with applied("bucketing") as said:
            found = epochs(data=Computes())
        assert sorted(record.msg for record in caplog.records) == asked, "the copy's are not this process's"
    assert len(said) == 1
    for (at, cells, _, states), (their_at, their_cells, _, theirs) in zip(plain, found, strict=True):
        assert sorted(at) == sorted(their_at) and their_cells < 0.7 * cells and states == theirs


def test_what_is_computed_slowly_draws_or_shares_a_file_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(__file__).open() as file:
        for data, why in (
            (Computes(file), "what it holds cannot be looked at"),
            (Draws(), "they draw random numbers"),
            (Computes(), "took 0 s"),
        ):
            if why == "took 0 s":
                monkeypatch.setattr(buckets, "SECONDS", -1.0)
            reasons: list[str] = []
            with applied("bucketing", declined=reasons) as said:
                epochs(number=1, data=data)
            assert not said and len(reasons) == 1 and why.replace("0 s", "-1 s") in reasons[0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"shuffle": False}, "is not a random one"),
        ({"sampler": RandomSampler(DATA, replacement=True), "shuffle": False}, "several times"),
        ({"sampler": RandomSampler(DATA, num_samples=900), "shuffle": False}, "several times"),
        ({"sampler": RandomSampler(list(DATA)), "shuffle": False}, "another data set"),
        ({"batch_size": 1}, "one sequence per batch"),
        ({"batch_size": 500}, "a single batch"),
        ({"collate_fn": to_the_cap}, "equally wide"),
        ({"data": Draws()}, "are not known"),
        ({"data": [{"input_ids": torch.ones(9), "at": at} for at in range(99)]}, "hardly less padding"),
        ({"batch_size": None, "shuffle": False, "collate_fn": None}, "torch's BatchSampler"),
        ({"batch_sampler": [[0, 1], [2, 3]], "batch_size": 1, "shuffle": None}, "torch's BatchSampler"),
    ],
)
def test_who_keeps_its_order_and_why(kind: dict[str, Any], why: str) -> None:
    def drawn() -> list[Any]:
        torch.manual_seed(3)
        random.seed(3)
        data = kind.get("data", DATA)
        given_ = {"batch_size": 8, "shuffle": True, "collate_fn": pads, **kind}
        given_.pop("data", None)
        return [np.asarray(batch["at"]).tolist() for batch in DataLoader(data, **given_)]

    plain, reasons = drawn(), []
    with applied("bucketing", declined=reasons) as said:
        assert drawn() == plain
    assert not said and len(reasons) == 1 and why in reasons[0]


def test_a_batch_sampler_that_only_knows_more_is_drawn_from_as_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """sentence-transformers' DefaultBatchSampler; one with an order of its own keeps it."""

    class Knows(BatchSampler):
        seed = 3

    class Draws(Knows):
        def __iter__(self) -> Any:
            return iter([[0, 1], [2, 3]])

    reasons: list[str] = []
    with applied("bucketing", declined=reasons) as said:
        for kind in (Draws, Knows):
            list(DataLoader(DATA, batch_sampler=kind(RandomSampler(DATA), 8, False), collate_fn=pads))  # type: ignore[arg-type]
            assert len(said) == (kind is Knows)
    assert len(reasons) == 1 and "torch's BatchSampler" in reasons[0]


class SkipBatchSampler(BatchSampler):
    """As accelerate.skip_first_batches puts it around a loader's own."""

    def __init__(self, batch_sampler: Any, skip_batches: int = 0) -> None:
        self.batch_sampler, self.skip_batches = batch_sampler, skip_batches

    def __len__(self) -> int:
        return len(self.batch_sampler) - self.skip_batches

    def __iter__(self) -> Iterator[list[int]]:
        yield from itertools.islice(self.batch_sampler, self.skip_batches, None)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_an_epoch_that_is_resumed_goes_on_in_its_order(again: bool) -> None:
    def loaded(skip: int = 0) -> Any:
        torch.manual_seed(3)
        loader = DataLoader(DATA, batch_size=8, shuffle=True, collate_fn=pads)  # type: ignore[arg-type]
        if not skip:
            return loader
        rest: Any = SkipBatchSampler(loader.batch_sampler, skip - again)
        return DataLoader(DATA, batch_sampler=SkipBatchSampler(rest, 1) if again else rest, collate_fn=pads)  # type: ignore[arg-type]

    with applied("bucketing") as said:
        whole = [batch["at"].tolist() for batch in loaded()]
        rest = [batch["at"].tolist() for batch in loaded(skip=20)]
    assert rest == whole[20:] and len(said) == 2


def test_a_batch_sampler_without_a_hash_is_left_alone() -> None:
    class Unhashable(BatchSampler):
        __hash__ = None  # type: ignore[assignment]

    with applied("bucketing") as said:
        assert len(list(DataLoader(DATA, batch_sampler=Unhashable(RandomSampler(DATA), 8, False), collate_fn=pads)))  # type: ignore[arg-type]
    assert not said


def test_what_a_collate_function_does_when_it_is_tried_is_not_the_programs(capfd: pytest.CaptureFixture[str]) -> None:
    """Streams of the program and of its own, what it opens, counts and prints."""

    class Draws:
        def __init__(self) -> None:
            self.generator, self.opened = np.random.default_rng(0), False
            self.calls: list[Any] = []

        def __call__(self, samples: list[Any]) -> Any:
            print("collating", flush=True)
            self.opened = True
            own = self.generator.random()
            self.calls.append([own, torch.rand(()).item(), random.random(), np.random.rand()])
            return pads(samples)

    plain, tried = Draws(), Draws()
    order = epochs(number=1, collate_fn=plain)
    printed = capfd.readouterr().out
    with applied("bucketing") as said:
        found = epochs(number=1, collate_fn=tried)
    assert said and tried.calls == plain.calls and capfd.readouterr().out == printed
    assert found[0][3] == order[0][3]


def test_a_loader_is_looked_at_once_and_what_it_cannot_do_is_no_error() -> None:
    def fails_once(samples: list[Any]) -> Any:
        if len(samples) == 2:
            raise ZeroDivisionError
        return pads(samples)

    reasons: list[str] = []
    with applied("bucketing", declined=reasons) as said:
        epochs(number=3, collate_fn=fails_once)
    assert not said and len(reasons) == 1 and "ZeroDivisionError" in reasons[0]


def test_rows_that_are_cut_to_their_longest_are_bucketed_too() -> None:
    reasons: list[str] = []
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with applied("bucketing", "trim_padding", declined=reasons) as said:
        loader = DataLoader(DATA, batch_size=8, shuffle=True, collate_fn=to_the_cap)  # type: ignore[arg-type]
        widths = []
        for batch in loader:
            widths.append(batch["input_ids"].shape[1])
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    assert len(said) == 2 and not reasons
    assert np.mean(widths[1:]) < 60 < 70 < np.mean([max(LENGTHS[at : at + 8]) for at in range(0, 400, 8)])


def test_nothing_is_kept_of_a_loader_that_is_gone() -> None:
    with applied("bucketing"):
        loader = DataLoader(DATA, batch_size=8, shuffle=True, collate_fn=pads)  # type: ignore[arg-type]
        next(iter(loader))
        gone = weakref.ref(loader.batch_sampler)
        del loader
        gc.collect()
        assert gone() is None


# lengths


def test_lengths_come_from_masks_ids_and_lists() -> None:
    mask = torch.tensor([1, 1, 1, 0, 0])
    padded = [{"input_ids": torch.zeros(5), "attention_mask": mask}, {"input_ids": [0] * 5, "attention_mask": [1] * 5}]
    for data, lengths in (
        (padded, [3, 5]),
        ([{"input_ids": [1, 2, 3]}, {"input_ids": np.ones(4)}], [3, 4]),
        ([[1, 2, 3], [4]], [3, 1]),
        ([(torch.ones(3), 0), (torch.ones(2), 1)], [3, 2]),
        ((torch.ones(7), torch.ones(2)), [7, 2]),
        (Subset(Subset(DATA, [5, 9, 11]), [2, 0]), [LENGTHS[11], LENGTHS[5]]),  # type: ignore[arg-type]
        (Index(), LENGTHS),
        ([(torch.tensor([7, 8, 0, 0]), mask_, 1) for mask_ in (torch.tensor([1, 1, 0, 0]), torch.ones(4))], [2, 4]),
    ):
        found = sample_lengths(data)
        assert found is not None and found.tolist() == lengths


@pytest.mark.parametrize(
    "data",
    [
        Draws(), [], ["text", "more"], [("ham", [1, 2]), ("spam", [3])], [{"label": "ham", "tokens": [1, 2]}],
        [torch.ones(2, 3)], [{"pixel_values": torch.ones(3)}], range(9),
        torch.utils.data.TensorDataset(torch.ones(3, 4)), [torch.ones(3, device="meta")], [([1, 2], 3), 5],
    ],
)  # fmt: skip
def test_lengths_that_would_have_to_be_computed_are_not_known(data: Any) -> None:
    assert sample_lengths(data) is None


class Column:
    """Of a table."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def to_numpy(self) -> Any:
        return np.array(self.values)


class Table:
    def __init__(self, **columns: Any) -> None:
        self.columns = columns

    def column(self, name: Any) -> Column:
        return Column(self.columns[name] if isinstance(name, str) else next(iter(self.columns.values())))


def hugging_face(kind: str | None = None, order: list[int] | None = None, **columns: Any) -> Any:
    """What is used of a datasets.Dataset, without the library."""
    made = type("Dataset", (), {"__module__": "datasets.arrow_dataset"})()
    made.format, made.column_names, made.data = {"type": kind}, list(columns), Table(**columns)
    made._indices = None if order is None else Table(indices=order)
    made.features = {
        n: types.SimpleNamespace(dtype="string" if isinstance(c[0], str) else "") for n, c in columns.items()
    }
    return made


def test_columns_of_a_hugging_face_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = types.SimpleNamespace(
        list_value_length=lambda column: Column([len(each) for each in column.values]),
        list_flatten=lambda column: Column([one for each in column.values for one in each]),
    )
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(compute=compute))
    mask, ids = [[1, 1, 0], [], [1, 0, 0], [1, 1, 1]], [[5, 6, 7], [5], [5, 6], [1, 2, 3, 4]]
    for given_, lengths in (
        ({"input_ids": ids}, [3, 1, 2, 4]),
        ({"input_ids": ids, "attention_mask": mask}, [2, 0, 1, 3]),
        ({"input_ids": ids, "length": [9, 8, 7, 6]}, [9, 8, 7, 6]),
        ({"input_ids": ids, "order": [3, 0]}, [4, 3]),
    ):
        found = sample_lengths(hugging_face(**given_))
        assert found is not None and found.tolist() == lengths
    assert sample_lengths(hugging_face(kind="custom", input_ids=ids)) is None, "computed when it is asked for"
    assert sample_lengths(hugging_face(text=ids)) is None


# what it promises


@pytest.mark.parametrize(
    ("longest", "together", "expected"), [(3e6, 5e6, 5e6), (0.0, 5e6, 5e6), (4.8e6, 5e6, 0.0), (None, None, 0.0)]
)
def test_it_promises_what_the_simulation_does_beyond_padding_to_the_longest(
    longest: float | None, together: float | None, expected: float
) -> None:
    known = {"saved_by_longest": longest, "saved_by_bucketing": together, "bucketing": 0.9}
    evidence = {name: Quantity(value, "ns") for name, value in known.items() if value is not None}
    finding = Finding("BRR409", "padding", "data", "note", Saving(1e6, 6e6, 7e6), "m", evidence=evidence)
    report = Report(verdict=Verdict("data", ""), step=Step(10, 10**7, 10**7), findings=(finding,))
    found = remedy("bucketing").predicts(report)
    assert found.expected_ns == expected and bool(found.ceiling_ns) == bool(expected)


def test_nothing_is_promised_of_lengths_that_were_not_seen() -> None:
    evidence = {name: Quantity(5e6, "ns") for name in ("saved_by_longest", "saved_by_bucketing")}
    evidence["saved_by_longest"] = Quantity(0, "ns")
    finding = Finding("BRR409", "padding", "data", "note", Saving(1e6, 6e6, 7e6), "m", evidence=evidence)
    report = Report(verdict=Verdict("data", ""), step=Step(10, 10**7, 10**7), findings=(finding,))
    assert remedy("bucketing").predicts(report) == Saving(), "three batches are no histogram"


# a whole program under the guard

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix, self.out = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask, labels):
        q, k, v = self.mix(self.words(input_ids)).chunk(3, -1)
        x = F.scaled_dot_product_attention(q, k, v, attention_mask[:, None, :].bool())
        return F.cross_entropy(self.out(x[:, 0]), labels)

def collate(rows):
    ids = pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids[:, 0] % 2}

torch.manual_seed(0)
lengths = (torch.randn(400) * 0.9 + 3).exp().clamp(2, 120).long().tolist()
data = [torch.randint(1, 50, (length,)) for length in lengths]
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
while True:
    for batch in DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate):
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_the_guard_finds_the_same_training_in_another_order(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    referee = LiveReferee(Program((sys.executable, "train.py"), source, 2e6, threads=1), tmp_path / "arms")
    found = referee.guard(("bucketing",))
    assert found.green and found.verdict == "bounded", found
