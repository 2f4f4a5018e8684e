"""Batches one ahead: nothing lost or twice, errors in their place, memory in the right order: on fakes and the CPU."""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from gobrrr.data import Prefetch, ahead, prefetch
from gobrrr.errors import GobrrrError

CPU = torch.device("cpu")
Pair = collections.namedtuple("Pair", "x y")


class Log:
    """A lane that writes down what happens when, and checks what must be in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.under_way: Any = None

    def __call__(self, _: torch.device) -> Log:
        return self

    def send(self, batch: Any) -> Any:
        assert self.under_way is None, "two copies at a time: the first one's memory is not safe"
        self.under_way = batch
        self.lines.append(f"send {batch}")
        return f"{batch} there"

    def sent(self) -> None:
        self.under_way = None
        self.lines.append("sent")

    def receive(self, batch: Any) -> Any:
        self.lines.append(f"receive {batch}")
        return batch


def fails_after(number: int) -> Iterator[int]:
    yield from range(number)
    raise ZeroDivisionError


def test_the_next_is_on_its_way_when_one_is_handed_out() -> None:
    lane = Log()
    for batch in Prefetch(["a", "b"], CPU, lane):
        lane.lines.append(f"step {batch}")
    assert lane.lines == [
        *("send a", "receive a there", "sent", "send b", "step a there"),
        *("receive b there", "sent", "step b there"),
    ]


@pytest.mark.parametrize("number", range(4))
def test_each_batch_once_in_order_and_again(number: int) -> None:
    batches = Prefetch(list(range(number)), CPU, Log())
    for _ in range(2):
        assert list(batches) == [f"{at} there" for at in range(number)]
    assert len(batches) == number
    assert list(Prefetch([None, None], CPU, Log())) == ["None there"] * 2


@pytest.mark.parametrize("number", range(4))
def test_an_error_comes_after_the_batches_before_it(number: int) -> None:
    class Loader:
        def __iter__(self) -> Iterator[int]:
            return fails_after(number)

    got = []
    with pytest.raises(ZeroDivisionError):
        for batch in Prefetch(Loader(), CPU, Log()):
            got.append(batch)  # noqa: PERF402
    assert got == [f"{at} there" for at in range(number)]
    with pytest.raises(TypeError, match="has no len"):
        len(Prefetch(Loader(), CPU, Log()))


def test_an_error_lets_the_loader_go() -> None:
    """Its workers end with its last reference, not when garbage is collected some time."""

    class Loader:
        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> int:
            raise ZeroDivisionError

    loader = Loader()
    gone, batches = weakref.ref(loader), iter(Prefetch(loader, CPU, Log()))
    with contextlib.suppress(ZeroDivisionError):
        next(batches)
    del loader, batches
    assert gone() is None


def test_leaving_early_draws_one_more_and_ends_the_loader() -> None:
    drawn: list[int] = []
    ended: list[bool] = []

    class Loader:
        def __iter__(self) -> Iterator[int]:
            try:
                for at in range(9):
                    drawn.append(at)
                    yield at
            finally:
                ended.append(True)

    batches = iter(Prefetch(Loader(), CPU, Log()))
    next(batches)
    del batches
    assert drawn == [0, 1] and ended == [True]


def test_a_loader_may_fill_the_same_memory_again() -> None:
    """A copy has left before the loader goes on: what is handed out is the batch, not the next one."""
    memory = torch.zeros(1)

    class Slow(Log):
        """Copies late, as a device does: when waited for."""

        def send(self, batch: Any) -> Any:
            self.under_way = (batch, torch.empty(1))
            return self.under_way[1]

        def sent(self) -> None:
            if self.under_way:
                source, target = self.under_way
                target.copy_(source)
                self.under_way = None

    class Loader:
        def __iter__(self) -> Iterator[torch.Tensor]:
            for at in range(5):
                yield memory.fill_(at)

    assert [float(batch) for batch in Prefetch(Loader(), CPU, Slow())] == [0, 1, 2, 3, 4]


def test_on_the_cpu_batches_pass_as_they_are() -> None:
    held = [{"x": torch.ones(2)}, object()]
    assert all(one is other for one, other in zip(prefetch(held, "cpu"), held, strict=True))
    loader = DataLoader(torch.arange(6.0), batch_size=2, num_workers=1)  # type: ignore[arg-type]
    assert [batch.tolist() for batch in prefetch(loader, "cpu")] == [[0, 1], [2, 3], [4, 5]]
    assert len(prefetch(loader, "cpu")) == 3


def test_other_devices_get_each_batch() -> None:
    got = list(prefetch([Pair(torch.ones(2), [torch.ones(1), "a"])], "meta"))
    assert got[0].x.device.type == "meta" and got[0].y[0].device.type == "meta" and got[0].y[1] == "a"


def test_containers_keep_their_types() -> None:
    class Own(collections.UserDict):  # type: ignore[type-arg]
        more = "kept"

    class Moves:
        def to(self, device: torch.device) -> str:
            return f"on {device}"

    batch = {
        "a": [torch.ones(1), (torch.ones(1), 3)],
        "p": Pair(torch.ones(1), None),
        "o": Own(x=torch.ones(1)),
        "m": Moves(),
    }
    new = ahead.moved(batch, lambda tensor: tensor + 1, CPU)
    assert new["a"][0] == 2 and new["a"][1][0] == 2 and new["a"][1][1] == 3 and type(new["a"][1]) is tuple
    assert type(new["p"]) is Pair and new["p"].x == 2 and type(new["o"]) is Own and new["o"]["x"] == 2
    assert new["m"] == "on cpu" and batch["o"]["x"] == 1 and batch["a"][0] == 1


class FakeStream:
    """Of torch.cuda, as far as the lane uses it."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_event(self, _: Any) -> None:
        self.log.append(f"{self.name} waits")


class FakeTensor(torch.Tensor):
    """Writes down what is done with it."""

    log: ClassVar[list[str]] = []
    pinned: ClassVar[bool] = False

    def pin_memory(self, *_: Any) -> Any:
        self.log.append("pin")
        return self

    def is_pinned(self, *_: Any) -> bool:
        return self.pinned

    def to(self, *_: Any, non_blocking: bool = False) -> Any:
        self.log.append(f"to, blocking {not non_blocking}")
        return self

    def record_stream(self, stream: Any) -> None:
        self.log.append(f"used by {stream.name}")


class Known:
    """Of what must not be freed in a child."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def add(self, tensor: torch.Tensor) -> None:
        self.log.append("known")


@pytest.mark.parametrize("pinned", [False, True])
def test_the_lane_of_cuda_pins_copies_waits_and_marks(monkeypatch: pytest.MonkeyPatch, pinned: bool) -> None:
    log: list[str] = []

    class Event:
        def record(self, stream: FakeStream) -> None:
            log.append(f"event after {stream.name}")

        def synchronize(self) -> None:
            log.append("host waits")

    class Under:
        def __init__(self, stream: FakeStream) -> None:
            log.append(f"on {stream.name}")

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            log.append("back")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: FakeStream(log, "copies"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: FakeStream(log, "computing"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", Under)
    monkeypatch.setattr(FakeTensor, "log", log)
    monkeypatch.setattr(FakeTensor, "pinned", pinned)
    monkeypatch.setattr(ahead, "MARKED", Known(log))
    tensor = torch.ones(2).as_subclass(FakeTensor)
    assert len(list(prefetch([{"x": tensor, "n": 3}], "cuda"))) == 1
    assert log == [
        *("on copies", "known" if pinned else "pin", "to, blocking False", "event after copies", "back"),
        *("computing waits", "to, blocking True", "known", "used by computing", "host waits"),
    ]


def test_what_is_no_single_memory_is_not_marked() -> None:
    """The computing's stream has moved it; and torch marks no sparse tensors."""
    for tensor in (torch.ones(2).to_sparse(), torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])):
        assert ahead._used_by(FakeStream([], "computing"), tensor) is tensor
        lane: Any = object.__new__(ahead.CudaLane)
        assert lane._copied(tensor) is tensor


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(GobrrrError, match="int cannot be iterated"):
        prefetch(3, "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(GobrrrError, match="there is no cuda here"):
            next(iter(prefetch([1], "cuda")))


def test_streams_are_passed_through() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    assert [int(batch) for batch in prefetch(DataLoader(Stream(), batch_size=1), "cpu")] == [0, 1, 2, 3, 4]
