"""Batches one ahead in a program that does not know: the same ones, in their place, with their errors."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, Sampler  # noqa: E402
from torch.utils.data import dataloader as loaders  # noqa: E402

from gobrrr.data import ahead  # noqa: E402
from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies.loader import prefetch  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from tests.remedies.fake_way import NUM, Numbers, applied, drawn, loader, moves, plain, with_and_without  # noqa: E402


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(NUM))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fields", [{}, {"shuffle": True}, {"batch_size": 3}, {"persistent_workers": True}], ids=str)
def test_batches_are_the_same_in_every_epoch(monkeypatch: Any, workers: int, fields: dict[str, Any]) -> None:
    def program() -> Any:
        data = loader(Numbers(num=16), workers, **fields)
        return [drawn(iter(data)) for _ in range(2)], torch.rand(1).item()

    with_and_without(monkeypatch, program)


@pytest.mark.parametrize("bad", [(0,), (1,), (2, 4), (3, 4), (7,), (0, 1, 2, 3, 4, 5, 6, 7)], ids=str)
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_in_its_place_and_batches_after_it(monkeypatch: Any, bad: Any, workers: int) -> None:
    def program() -> Any:
        return drawn(iter(loader(Numbers(bad), workers)), ends=3)

    if len(bad) < NUM:
        with_and_without(monkeypatch, program)
    else:
        expected = program()
        with applied(monkeypatch):
            assert program() == expected


@pytest.mark.parametrize("taken", [1, 2, 3, 6, 7, 8])
def test_an_epoch_left_early_leaves_the_next_one_as_it_was(monkeypatch: Any, taken: int) -> None:
    """Workers that stay have a random stream that goes on from epoch to epoch, and so has the program's generator."""

    def program() -> Any:
        generator = torch.Generator().manual_seed(3)
        data = loader(workers=2, persistent_workers=True, shuffle=True, generator=generator)
        found: list[Any] = []
        for num in (taken, taken, NUM):
            batches = iter(data)
            for _ in range(num):
                found.append(plain(batch := next(batches)))
                moves(batch)
            found.append(generator.initial_seed() + int(generator.get_state().sum()))
        return found

    with_and_without(monkeypatch, program)


def test_samplers_are_asked_when_they_always_are(monkeypatch: Any) -> None:
    """One of the program's own draws from its random stream, and fails."""

    def program() -> Any:
        happened: list[Any] = []

        class Own(Sampler):
            def __iter__(self) -> Any:
                for at in range(NUM + 1):
                    happened.append(("asked", at, torch.rand(1).item()))
                    if at == NUM:
                        raise ZeroDivisionError("no index")
                    yield at

        data = loader(sampler=Own())
        for _ in range(2):
            batches = iter(data)
            with contextlib.suppress(ZeroDivisionError):
                for batch in batches:
                    happened.append((plain(batch), torch.rand(1).item()))
                    moves(batch)
            happened.append("error")
            happened += drawn(batches)
        return happened

    with_and_without(monkeypatch, program)


@pytest.mark.parametrize("taken", range(1, NUM + 1))
def test_taken_away_in_an_epoch_nothing_is_lost_or_comes_twice(monkeypatch: Any, taken: int) -> None:
    expected = drawn(iter(loader()))
    with applied(monkeypatch) as it:
        batches, found = iter(loader()), []
        for _ in range(taken):
            found.append(plain(batch := next(batches)))
            moves(batch)
        it.seams.remove()
        assert it.way.alive() == 0
        last = batch["x"]
        assert last.to("cpu") is last
        assert found + drawn(batches) == expected
        assert not {"_next_data", "_try_put_index"} & vars(batches).keys()


def test_a_copy_that_fails_ends_the_remedy_and_not_the_program(monkeypatch: Any) -> None:
    failed: list[BaseException] = []
    expected = drawn(iter(loader()))
    with applied(monkeypatch, failed=failed.append) as it:
        it.way.fails_at = 2
        assert drawn(iter(loader())) == expected
        assert len(it.way.there) == 2 and [str(each) for each in failed] == ["no room there"]
    with applied(monkeypatch) as it, pytest.raises(MemoryError):
        it.way.fails_at = 0
        drawn(iter(loader()))


def test_an_interrupt_while_the_next_is_drawn_loses_nothing(monkeypatch: Any) -> None:
    expected = drawn(iter(loader()))
    own, calls = loaders._MultiProcessingDataLoaderIter._next_data, [0]

    def interrupted(self: Any) -> Any:
        calls[0] += 1
        if calls[0] == 5:
            raise KeyboardInterrupt
        return own(self)

    monkeypatch.setattr(loaders._MultiProcessingDataLoaderIter, "_next_data", interrupted)
    with applied(monkeypatch) as it:
        batches, found = iter(loader()), []
        with pytest.raises(KeyboardInterrupt):
            for batch in batches:
                found.append(plain(batch))
                moves(batch)
        assert len(found) == 3 and it.way.there
        assert found + drawn(batches) == expected


def test_an_iterator_ends_with_its_last_reference(monkeypatch: Any) -> None:
    """Its workers end then; so nothing may go round in a circle, not even an error that has not come yet."""
    gc.disable()
    try:
        with applied(monkeypatch) as it:
            batches = iter(loader(Numbers(bad=(4,))))
            for _ in range(4):
                moves(next(batches))
            there = weakref.ref(batches)
            assert it.way.alive() == 0, "the program has dropped all of them, and next comes an error"
            del batches
            assert there() is None
    finally:
        gc.enable()


def test_what_is_dropped_is_no_longer_held(monkeypatch: Any) -> None:
    with applied(monkeypatch) as it:
        batches = iter(loader())
        for at in range(5):
            kept = next(batches)["x"]
            if at == 0:
                kept.to("cpu")
        assert it.way.alive() == 2, "the batch that nobody has asked for, and the next"
        before = kept
        next(batches)
        assert before.to("cpu") is before, "not the last one any more"
        with pytest.raises(StopIteration):
            while True:
                next(batches)
        assert it.way.alive() == 0, "the last one is over, too"
        batches = iter(loader())
        moves(next(batches))
        next(batches)
        assert it.way.alive() == 1
        del batches
        assert it.way.alive() == 0


def test_two_loaders_at_once_each_get_their_own(monkeypatch: Any) -> None:
    def program() -> Any:
        found = []
        for one, other in zip(loader(), loader(shuffle=True), strict=True):
            moves(one)
            moves(other)
            found.append((plain(one), plain(other)))
        return found

    way = with_and_without(monkeypatch, program)
    assert len(way.there) == 2 * 6 and way.most <= 2 * 2


class Answered(Numbers):
    """Makes a sample when the program has answered the one before."""

    def __init__(self, answers: Any) -> None:
        super().__init__()
        self.answers = answers

    def __getitem__(self, i: int) -> Any:
        if i:
            self.answers.get(timeout=30)
        return torch.tensor(i)


def test_nobody_waits_for_a_batch_before_its_time(monkeypatch: Any) -> None:
    """A worker that makes the next one when the program has answered the last: drawn ahead it would wait for ever."""

    def program() -> Any:
        answers: Any = multiprocessing.get_context("fork").Queue()
        found = []
        for batch in loader(Answered(answers), workers=1, batch_size=1):
            found.append(batch.tolist())
            batch.to("cpu")
            answers.put(None)
        return found

    with_and_without(monkeypatch, program, patient=False)


class OwnIterator(loaders._MultiProcessingDataLoaderIter):
    """As torchdata has one, which counts what it gives."""


class OwnLoader(DataLoader):
    def _get_iterator(self) -> Any:
        return OwnIterator(self)


@pytest.mark.parametrize(("data", "why"), [
    (lambda: loader(workers=0), "no workers"),
    (lambda: loader(prefetch_factor=1), "one batch at a time"),
    (lambda: loader(Stream()), "before their time"),
    (lambda: OwnLoader(Numbers(), num_workers=1), "OwnIterator"),
])  # fmt: skip
def test_others_are_left_alone_and_told_why_once(monkeypatch: Any, data: Any, why: str) -> None:
    with applied(monkeypatch) as it:
        batches = iter(data())
        for batch in batches:
            x = batch["x"] if isinstance(batch, dict) else batch
            assert x.to("cpu") is x and "_next_data" not in vars(batches)
        assert len(it.why) == 1 and why in it.why[0] and not it.said and not it.way.there


def test_an_iterator_of_which_somebody_else_draws_is_left_alone(monkeypatch: Any) -> None:
    with applied(monkeypatch) as it:
        batches = iter(loader())
        batches._next_data = theirs = batches._next_data
        assert len(drawn(batches)) == NUM + 1 and vars(batches)["_next_data"] is theirs
        assert "a way of its own" in it.why[0]


def test_the_lanes_of_a_device_share_its_stream(monkeypatch: Any) -> None:
    """Memory that one batch has left could not be used by one on another stream."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: [device])
    monkeypatch.setattr(torch.cuda, "Event", object)
    lane = prefetch.cuda_lanes()
    one, two, other = (lane(torch.device("cuda", at)) for at in (0, 0, 1))
    assert isinstance(one, ahead.CudaLane) and one is not two
    assert one.stream is two.stream and one.stream is not other.stream and one.event is not two.event


def test_it_needs_a_device() -> None:
    assert bool(prefetch.Prefetch().probe()) != torch.cuda.is_available()
    if not torch.cuda.is_available():
        with pytest.raises(GobrrrError, match="no CUDA device"):
            install(Seams(), ["prefetch"])
