"""A fake device for the remedy prefetch, and programs that it is tried on.

Its lanes copy to the CPU, late, as a device does. `.to("cpu")` gives the tensor itself without it, so that who got a
copy knows where it came from.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gobrrr.remedies.loader import drawn_ahead, prefetch  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402

NUM = 8
"""Batches of an epoch."""


class Way:
    """Makes lanes: each copies one batch, when it is waited for."""

    def __init__(self) -> None:
        self.there: list[Any] = []
        self.fails_at: int | None = None
        self.most = 0

    def __call__(self, device: Any) -> Any:
        return Lane(self, device)

    def alive(self) -> int:
        return sum(each() is not None for each in self.there)


class Lane:
    def __init__(self, way: Way, device: Any) -> None:
        self.way, self.device = way, device
        self.copies: list[tuple[Any, Any]] = []
        self.done = False

    def send(self, batch: Any) -> Any:
        assert not self.copies, "a lane for each batch: its event is of that batch's copy"
        if len(self.way.there) == self.way.fails_at:
            raise MemoryError("no room there")
        self.copies = [(each, torch.empty_like(each, device=self.device)) for each in batch]
        self.way.there += [weakref.ref(there) for _, there in self.copies]
        self.way.most = max(self.way.most, self.way.alive())
        return [there for _, there in self.copies]

    def sent(self) -> None:
        for source, there in self.copies:
            there.copy_(source)
        self.copies, self.done = [], True

    def receive(self, tensor: Any) -> Any:
        assert self.done, "the program has the batch, and may write to it, while it is copied"
        return tensor


PLAIN = prefetch.Prefetch


class Applied:
    """The remedy at work: what it said, and how to take it away."""

    def __init__(self, way: Way, **fields: Any) -> None:
        self.way = way
        self.said: list[str] = []
        self.why: list[str] = []
        self.seams = Seams(
            lambda name, detail: self.said.append(detail), declined=lambda name, why: self.why.append(why), **fields
        )
        install(self.seams, ["prefetch"])


@contextlib.contextmanager
def applied(
    monkeypatch: pytest.MonkeyPatch, kind: str = "cpu", patient: bool = True, **fields: Any
) -> Iterator[Applied]:
    """`patient`: steps are long enough for the next batch to be there, as they are where a copy is worth hiding."""
    way, is_there = Way(), drawn_ahead._is_there

    def comes(iterator: Any) -> bool:
        until = time.monotonic() + 20
        while not is_there(iterator) and iterator._rcvd_idx in iterator._task_info and time.monotonic() < until:
            time.sleep(0.001)
        return is_there(iterator)

    monkeypatch.setattr(drawn_ahead, "_is_there", comes if patient else is_there)

    class Faked(PLAIN):
        name = "prefetch"

        def __init__(self) -> None:
            super().__init__(way, kind)

    monkeypatch.setattr(prefetch, "Prefetch", Faked)
    it = Applied(way, **fields)
    try:
        yield it
    finally:
        it.seams.remove()
        assert not {"to", "cuda"} & vars(torch.Tensor).keys()


class Numbers(Dataset):
    """Sample i is i, with a number that its worker draws; some raise."""

    def __init__(self, bad: tuple[int, ...] = (), num: int = NUM) -> None:
        self.bad, self.num = bad, num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, i: Any) -> Any:
        if i in self.bad:
            raise ZeroDivisionError(f"sample {i}")
        return {"x": torch.full((2,), float(i)), "more": [i, (torch.rand(2), f"name {i}")]}


def loader(data: Any = None, workers: int = 1, **fields: Any) -> Any:
    torch.manual_seed(0)
    return DataLoader(Numbers() if data is None else data, num_workers=workers, **fields)


def plain(batch: Any) -> Any:
    return [batch["x"].tolist(), batch["more"][0].tolist(), batch["more"][1][0].tolist(), batch["more"][1][1]]


def moves(batch: Any) -> bool:
    """As a program does; whether what it got is a copy, and whole."""
    x = batch["x"]
    there = x.to("cpu")
    assert torch.equal(x, there)
    return there is not x


def drawn(batches: Any, ends: int = 1) -> list[Any]:
    """What comes of an iterator, errors too, until it ended so often."""
    found: list[Any] = []
    while found.count("end") < ends:
        with kept(found):
            batch = next(batches)
            found.append(plain(batch))
            moves(batch)
    return found


@contextlib.contextmanager
def kept(found: list[Any]) -> Iterator[None]:
    """How it ended, or failed."""
    try:
        yield
    except StopIteration:
        found.append("end")
    except ZeroDivisionError as error:
        found.append(str(error).strip().splitlines()[-1])


def with_and_without(monkeypatch: pytest.MonkeyPatch, program: Callable[[], Any], patient: bool = True) -> Way:
    """The same program twice: that it saw the same, and what was copied the second time."""
    expected = program()
    with applied(monkeypatch, patient=patient) as it:
        assert program() == expected
    assert it.way.there or not patient, "nothing was ever sent ahead"
    return it.way
