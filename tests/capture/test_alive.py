"""Who holds memory: by address, through containers and objects, a view of a part by its whole."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from gobrrr.capture.facts import failure  # noqa: E402
from gobrrr.capture.facts.alive import Alive, Group  # noqa: E402


class Layer:
    def __init__(self) -> None:
        self.keys, self.values = torch.ones(1, 8, 4096, 32), torch.ones(1, 8, 4096, 32)


class Cache:
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]


class Backend:
    def __init__(self) -> None:
        self.sessions = {"a": Cache(), "b": Cache()}


def groups(frame: FrameType, role: str) -> dict[str, Group]:
    found = Alive([frame], lambda file: file == __file__)
    found.look()
    return {group.name: group for kind, group in found.sizes["cpu"] if kind == role}


def test_tensors_deep_in_objects_are_told_by_the_container_that_holds_them() -> None:
    backend = Backend()
    found = groups(sys._getframe(), "other tensors")
    assert found["backend.sessions"].shape == (1, 8, 4096, 32)
    assert found["backend.sessions"].shown == 1.0
    del backend


class Noisy(dict):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise ValueError("looked at")

    __iter__ = values = __getitem__ = __reversed__ = __len__  # type: ignore[assignment]


class Meta(type):
    def __getattr__(cls, name: str) -> Any:
        raise ValueError(name)


class Closed(metaclass=Meta):
    def __getattribute__(self, name: str) -> Any:
        raise ValueError(name)


def test_nothing_of_the_programs_own_is_called_to_find_who_holds_it() -> None:
    noisy, closed = Noisy(a=[torch.ones(512, 700)], b=torch.ones(512, 700)), Closed.__new__(Closed)
    object.__getattribute__(closed, "__dict__")["kept"] = [torch.ones(300, 1024) for _ in range(2)]
    found = groups(sys._getframe(), "other tensors")
    assert found["noisy"].shape == (512, 700)
    assert found["closed.kept"].shape == (300, 1024)
    del noisy, closed


def test_fake_tensors_are_passed_over_without_a_warning() -> None:
    with FakeTensorMode():
        held = [torch.ones(1024, 1024) for _ in range(3)]
    held.insert(1, torch.ones(512, 512))
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            assert groups(sys._getframe(), "other tensors")["held"].shape == (512, 512)
    finally:
        torch.set_warn_always(False)
    assert not said
    del held


def test_lists_that_hooks_fill_are_told_by_the_module_that_has_them() -> None:
    class Distance(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.taps = torch.nn.Linear(512, 512), {3: [torch.ones(512, 1024) for _ in range(2)]}

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.distance = Distance()

    model = Model()
    assert groups(sys._getframe(), "other tensors")["model.distance.taps"].shape == (512, 1024)
    del model


def test_a_view_is_told_as_the_part_that_it_shows() -> None:
    bank = [torch.ones(64, 197, 192)[:, 0] for _ in range(3)]
    found = groups(sys._getframe(), "other tensors")
    assert found["bank"].shown == pytest.approx(1 / 197)
    del bank


def test_variables_of_a_forward_are_its_activations() -> None:
    seen: list[dict[str, Any]] = []

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            wide = x.repeat(1, 64)
            seen.append(groups(sys._getframe(), "forward activations"))
            return wide

    Net()(torch.ones(128, 64))
    assert {"x", "wide"} <= set(seen[0])


def test_arrays_in_tuples_that_the_collector_does_not_know_are_seen() -> None:
    cache = {number: (numpy.ones((256, 1024)), number) for number in range(4)}
    gc.collect()  # from now on its tuples are not tracked
    found = groups(sys._getframe(), "arrays")
    assert found["cache"].shape == (256, 1024)
    del cache


@pytest.mark.parametrize(("detached", "name"), [(False, "state"), (True, "")])
def test_a_state_that_brings_its_graph_is_told(detached: bool, name: str) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRUCell(4, 8)
            self.full = False

        def forward(self, x: Any, state: Any) -> Any:
            x = self.cell(x, *state)  # a name that is given to another value
            if self.full:
                raise MemoryError
            return (x,)

    def run(found: list[Any]) -> None:
        net, state = Net(), (torch.zeros(2, 8),)
        for _ in range(3):
            state = net(torch.ones(2, 4), state)
            state = tuple(each.detach() for each in state) if detached else state
        net.full = True
        with pytest.raises(MemoryError) as died:
            net(torch.ones(2, 4), state)
        found.append(failure._where(died.value)["carried"])

    found: list[Any] = []
    thread = threading.Thread(target=run, args=(found,))  # the order of ops is a thread's own
    thread.start()
    thread.join()
    assert found == [name]


def sums(program: Callable[[], None]) -> list[tuple[str, int]]:
    """What the look after an error says of sums."""
    with pytest.raises(MemoryError) as died:
        program()
    found = Alive(list(failure._frames(died.value)), lambda file: file == __file__)
    found.look()
    return found.summed


class Full(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.calls = torch.nn.Parameter(torch.ones(2)), 0

    def forward(self, number: int) -> Any:
        self.calls += 1
        if self.calls > 8:
            raise MemoryError
        return (self.weight * number).sum()


def loss_of(model: Any) -> Any:
    total = 0.0
    for number in range(9):
        total = total + model(number)
    return total


def test_a_sum_of_losses_over_steps_is_told_and_one_of_a_steps_parts_is_not() -> None:
    def evaluates() -> None:
        loss_of(Full())

    def trains() -> None:
        loss_of(Full()).backward()

    def validates() -> None:
        loss_of(Full().eval()).backward()  # a loop of training that calls an evaluation, say

    assert sums(evaluates) == sums(validates) == [("total", 8)]
    assert sums(trains) == [], "its caller calls backward"


class RunningMean(torch.nn.Module):
    def __init__(self, *, detached: bool) -> None:
        super().__init__()
        self.layer, self.detached = torch.nn.Linear(64, 64), detached
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        self.mean = 0.9 * self.mean + 0.1 * (y.detach() if self.detached else y).mean(0)
        return y


@pytest.mark.parametrize("detached", [False, True])
def test_a_running_mean_that_keeps_its_graph_is_named(detached: bool) -> None:
    gc.collect()  # else the model of another test
    model = RunningMean(detached=detached)

    def train() -> None:  # a thread of its own counts its ops from the first
        for _ in range(6):
            model(torch.ones(8, 64)).sum().backward(retain_graph=True)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    found = Alive([sys._getframe()], lambda file: file == __file__)
    found.look()
    assert found.carried == ("" if detached else "RunningMean.mean")


def test_gradients_that_have_a_graph_are_noticed_and_masks_are_counted() -> None:
    layer = torch.nn.Linear(4, 4)
    mask = torch.zeros(10, 40, dtype=torch.bool)
    mask[:, :4] = True
    chosen = torch.arange(400).reshape(10, 40) % 7 == 3  # tokens that a loss is of: no padding
    with pytest.warns(UserWarning, match="create_graph"):
        (layer(torch.ones(2, 4)) ** 2).sum().backward(create_graph=True)
    found = Alive([sys._getframe()], lambda file: file == __file__)
    found.look()
    assert found.gradient_graphs and ("mask", [10, 40], 0.1) in found.masks
    assert "chosen" not in [name for name, _, _ in found.masks]
    for parameter in layer.parameters():
        parameter.grad = None
    gc.collect()
    plain = Alive([sys._getframe()], lambda file: file == __file__)
    plain.look()
    assert not plain.gradient_graphs
    del mask, chosen


def test_numbers_in_lists_are_counted_and_their_holder_named() -> None:
    store = Backend()
    store.sessions = {n: [[0.5 + k for k in range(512)] for _ in range(16)] for n in range(80)}
    found = groups(sys._getframe(), "Python numbers")
    (name,) = found
    assert name == "Backend.sessions" and found[name].shape[0] >= 80 * 16 * 512
    del store


def test_what_a_forward_hook_keeps_is_the_hooks() -> None:
    layer = torch.nn.Linear(2, 2)

    def watch() -> None:
        seen = []
        layer.register_forward_hook(lambda module, inputs, output: seen.append(torch.ones(1 << 20)))
        for _ in range(3):
            layer(torch.ones(1, 2))

    watch()
    found = groups(sys._getframe(), "other tensors")
    assert any(name.startswith("forward hook ") and name.endswith("<lambda>") for name in found), found
