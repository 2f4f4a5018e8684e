"""What a program asks of its tensors: what is there, where it asks for just that; else by the plain way."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.data import dataloader as loaders  # noqa: E402

from gobrrr.remedies.loader.drawn_ahead import device_of_cuda, device_of_to, whole  # noqa: E402
from tests.remedies.fake_way import NUM, applied, loader, moves  # noqa: E402


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


def test_the_compiler_finds_the_method_itself(monkeypatch: Any) -> None:
    with applied(monkeypatch):
        for batch in loader():
            seen = {"x": batch["x"], "__name__": "torch._dynamo.variables"}
            assert type(eval("x.to", seen)) is type(torch.ones(1).to) is not type(batch["x"].to)


def test_nothing_is_sent_in_inference_mode(monkeypatch: Any) -> None:
    """Where tensors are made elsewhere, by the thread that pins them, and are as others."""
    own = loaders._MultiProcessingDataLoaderIter._next_data

    def elsewhere(self: Any) -> Any:
        batch = own(self)
        with torch.inference_mode(False):
            return {**batch, "x": batch["x"].clone()}

    monkeypatch.setattr(loaders._MultiProcessingDataLoaderIter, "_next_data", elsewhere)
    with applied(monkeypatch) as it:
        batches = iter(loader())
        for _ in range(NUM):
            with torch.inference_mode():
                batch = next(batches)
            assert not moves(batch)
        assert not it.way.there


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
