"""Batches one ahead in a program that does not know: the same ones, in their place, and of them what it asked for.

No device here: a fake lane copies to the CPU, late, as a device does. `.to("cpu")` gives the tensor itself without it,
so that who got a copy knows where it came from.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler  # noqa: E402
from torch.utils.data import dataloader as loaders  # noqa: E402

from gobrrr.data import ahead  # noqa: E402
from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies import prefetch  # noqa: E402
from gobrrr.remedies.asked import device_of_cuda, device_of_to, whole  # noqa: E402
from gobrrr.remedies.seams import Seams  # noqa: E402

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


class Applied:
    """The remedy at work: what it said, and how to take it away."""

    def __init__(self, way: Way, **fields: Any) -> None:
        self.way = way
        self.said: list[str] = []
        self.why: list[str] = []
        self.seams = Seams(
            lambda name, detail: self.said.append(detail), declined=lambda name, why: self.why.append(why), **fields
        )
        self.seams.install(["prefetch"])


@contextlib.contextmanager
def applied(monkeypatch: pytest.MonkeyPatch, kind: str = "cpu", **fields: Any) -> Iterator[Applied]:
    way = Way()
    monkeypatch.setattr(prefetch, "REMEDY", prefetch.Prefetch(way, kind))
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


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(NUM))


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


def with_and_without(monkeypatch: pytest.MonkeyPatch, program: Callable[[], Any]) -> Way:
    """The same program twice: that it saw the same, and what was copied the second time."""
    expected = program()
    with applied(monkeypatch) as it:
        assert program() == expected
    assert it.way.there, "nothing was ever sent ahead"
    return it.way


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fields", [{}, {"shuffle": True}, {"batch_size": 3}, {"persistent_workers": True}], ids=str)
def test_batches_are_the_same_in_every_epoch(monkeypatch: Any, workers: int, fields: dict[str, Any]) -> None:
    def program() -> Any:
        data = loader(Numbers(num=16), workers, **fields)
        return [drawn(iter(data)) for _ in range(2)], torch.rand(1).item()

    with_and_without(monkeypatch, program)


def test_what_is_asked_for_is_there_from_the_third_batch_on(monkeypatch: Any) -> None:
    """The first one teaches, the second had been drawn by then."""
    with applied(monkeypatch) as it:
        assert [moves(batch) for batch in loader()] == [False, False] + [True] * 6
        assert it.said == ["batches to cpu"] and not it.why
        assert len(it.way.there) == 6, "only what is asked for is sent"
        assert it.way.most == 2 and it.way.alive() == 0


def test_nested_tensors_are_known_by_their_places(monkeypatch: Any) -> None:
    with applied(monkeypatch) as it:
        for at, batch in enumerate(loader()):
            index, (number, _) = batch["more"]
            assert (number.to("cpu") is not number) == (at > 1)
            if at >= 3:
                there = index.to(device="cpu", non_blocking=True)
                assert (there is not index) == (at > 4) and there == at, "late ones are learned too"
                del there
        assert it.way.most == 2 * 2, "two batches of two"


def test_another_device_comes_as_ever(monkeypatch: Any) -> None:
    with applied(monkeypatch, kind="meta") as it:
        got = [batch["x"].to("meta") for batch in loader()]
        assert {each.device.type for each in got} == {"meta"} and it.said == ["batches to meta"]
        assert sum(each is ref() for ref in it.way.there for each in got) == 6


def test_one_that_is_not_asked_for_is_not_sent(monkeypatch: Any) -> None:
    with applied(monkeypatch) as it:
        assert len([batch["x"].to("meta") for batch in loader()]) == NUM
        assert len([batch["x"].float().double() for batch in loader()]) == NUM
        assert not it.way.there and not it.said and not it.why


ASKED = {
    "twice": lambda x: (x.to("cpu"), x.to("cpu"))[1],
    "another dtype": lambda x: x.to("cpu", torch.float64).float(),
    "a copy": lambda x: x.to("cpu", copy=True),
    "a format": lambda x: x.to("cpu", memory_format=torch.contiguous_format),
    "like another": lambda x: x.to(torch.zeros(1)),
    "written to": lambda x: x.add_(1).to("cpu"),
    "written to through a view": lambda x: (x[:1].zero_(), x.to("cpu"))[1],
    "other memory": lambda x: (setattr(x, "data", x + 1), x.to("cpu"))[1],
    "another shape": lambda x: x.squeeze_(0).to("cpu"),
    "with gradients": lambda x: x.requires_grad_().to("cpu"),
    "of the class": lambda x: torch.Tensor.to(x, "cpu"),
}


@pytest.mark.parametrize("how", ASKED)
def test_what_is_anything_else_is_made_as_ever(monkeypatch: Any, how: str) -> None:
    """By the plain way, which gives the very tensor where nothing changes."""
    expected = []
    for batch in loader():
        x = batch["x"]
        got = ASKED[how](x)
        expected.append((got.tolist(), got.requires_grad, got is x))
    with applied(monkeypatch) as it:
        for batch, wanted in zip(loader(), expected, strict=True):
            y = batch["more"][0]
            y.to("cpu")  # so that something is sent in any case
            x = batch["x"]
            if wanted is expected[0]:
                x.to("cpu")  # asked for once, it would be there
                continue
            got = ASKED[how](x)
            assert (got.tolist(), got.requires_grad, got is x) == wanted
        assert len(it.way.there) == 2 * 6, "it was there to be given"


class Sees(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class SeesOps(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


WATCHED = [torch.inference_mode, Sees, SeesOps]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, *WATCHED])
def test_who_wants_to_see_the_call_sees_it(monkeypatch: Any, mode: Any) -> None:
    with applied(monkeypatch) as it:
        for at, batch in enumerate(loader()):
            if at == 0:
                moves(batch)
                continue
            with mode():
                assert moves(batch) == (at > 1 and mode not in WATCHED)
        assert it.way.there


def test_transforms_and_the_compiler_have_it_their_way(monkeypatch: Any) -> None:
    def double(x: Any) -> Any:
        return x.to("cpu") * 2

    compiled = torch.compile(double, backend="eager", fullgraph=True)
    with applied(monkeypatch):
        for batch in loader():
            x = batch["x"]
            assert torch.equal(compiled(x), x * 2) and torch.equal(torch.func.vmap(double)(x), x * 2)
            assert torch.equal(torch.jit.trace(double, (x,))(x + 1), (x + 1) * 2)
            x.to("cpu")


def test_the_class_has_its_methods_as_ever(monkeypatch: Any) -> None:
    """Subclasses know torch's methods by what they are (torchvision's tv_tensors)."""
    known = {torch.Tensor.to, torch.Tensor.cuda}
    seen: list[Any] = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    with applied(monkeypatch):
        assert {torch.Tensor.to, torch.Tensor.cuda} == known
        assert type(torch.ones(1).as_subclass(Own).to("cpu")) is Own and seen[-1] in known


@pytest.mark.parametrize("bad", [(0,), (1,), (2,), (3, 4), (7,), (0, 1, 2, 3, 4, 5, 6, 7)], ids=str)
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


def test_streams_are_drawn_ahead_too(monkeypatch: Any) -> None:
    def program() -> Any:
        found = []
        for _ in range(2):
            for batch in loader(Stream(), workers=2, batch_size=3):
                found.append(batch.tolist())
                batch.to("cpu")
        return found

    with_and_without(monkeypatch, program)


class OwnIterator(loaders._MultiProcessingDataLoaderIter):
    """As torchdata has one, which counts what it gives."""


class OwnLoader(DataLoader):
    def _get_iterator(self) -> Any:
        return OwnIterator(self)


@pytest.mark.parametrize(("data", "why"), [
    (lambda: loader(workers=0), "no workers"),
    (lambda: loader(prefetch_factor=1), "one batch at a time"),
    (lambda: loader(Stream(), persistent_workers=True), "left early"),
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


@pytest.mark.parametrize(("given", "device"), [
    (("cuda",), "cuda"), (("cuda:1",), "cuda:1"), ((torch.device("meta"), None, True), "meta"), (("meta",), "meta"),
    (("cpu", torch.float32), "cpu"), (("cpu", torch.float16), None), ((torch.float32,), None),
    ((torch.zeros(1),), None), (("nowhere",), None), ((), None), (({"device": "meta"},), "meta"),
    (({"device": "meta", "memory_format": torch.preserve_format},), "meta"),
    (({"device": "meta", "memory_format": torch.channels_last},), None), (({"other": torch.ones(1)},), None),
], ids=str)  # fmt: skip
def test_what_to_asks_for(given: tuple[Any, ...], device: str | None) -> None:
    args = tuple(each for each in given if not isinstance(each, dict))
    (kwargs,) = [each for each in given if isinstance(each, dict)] or [{}]
    assert device_of_to(torch.ones(1), *args, **kwargs) == (torch.device(device) if device else None)


@pytest.mark.parametrize(("given", "device"), [
    ({}, "cuda"), ({"device": 1, "non_blocking": True}, "cuda:1"), ({"device": "cuda:0"}, "cuda:0"),
    ({"device": torch.device("cuda", 2)}, "cuda:2"), ({"device": "elsewhere"}, None), ({"device": 1.5}, None),
    ({"device": True}, None), ({"memory_format": torch.channels_last}, None), ({"non": 1}, None),
], ids=str)  # fmt: skip
def test_what_cuda_asks_for(given: dict[str, Any], device: str | None) -> None:
    assert device_of_cuda(torch.ones(1), **given) == (torch.device(device) if device else None)


def test_a_device_has_its_index(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert whole(torch.device("cuda")) == torch.device("cuda:3")
    assert [whole(torch.device(name)) for name in ("cuda:1", "meta")] == [torch.device("cuda:1"), torch.device("meta")]


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
    assert bool(prefetch.REMEDY.probe()) != torch.cuda.is_available()
    if not torch.cuda.is_available():
        with pytest.raises(GobrrrError, match="no CUDA device"):
            Seams().install(["prefetch"])
