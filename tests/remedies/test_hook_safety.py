"""A remedy that fails in a hook is told and taken away; the program goes on, whoever calls its modules."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim import optimizer as optimizers  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.data.dataloader import _BaseDataLoaderIter  # noqa: E402

from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402


class Injected(Exception):
    """Raised in an action of a remedy's."""


def fail(*_: Any) -> Any:
    raise Injected


def hooked(seam: str, told: list[BaseException] | None, action: Any = fail) -> Seams:
    seams = Seams(failed=None if told is None else told.append)
    getattr(seams, seam)(action)
    seams.hook()
    return seams


def train() -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=3):
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
    return float(loss)


@pytest.mark.parametrize("seam", ["at_optimizer", "at_model", "at_loader", "at_step", "at_batch"])
def test_a_failure_in_an_action_is_not_felt(seam: str) -> None:
    plain, told = train(), []
    before = (vars(torch.nn.Module)["__call__"], vars(DataLoader)["__init__"], vars(_BaseDataLoaderIter)["__next__"])
    seams = hooked(seam, told)
    try:
        assert train() == plain
    finally:
        seams.remove()
    assert [type(error) for error in told] == [Injected]
    after = (vars(torch.nn.Module)["__call__"], vars(DataLoader)["__init__"], vars(_BaseDataLoaderIter)["__next__"])
    assert after == before
    assert not optimizers._global_optimizer_pre_hooks


def test_where_nobody_is_told_it_comes_up() -> None:
    seams = hooked("at_model", None)
    try:
        with pytest.raises(Injected):
            train()
    finally:
        seams.remove()


def test_an_interrupt_is_the_programs() -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    seams = hooked("at_optimizer", [], interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            train()
    finally:
        seams.remove()


def test_a_module_that_c_calls_is_met_too() -> None:
    met: list[Any] = []
    seams = hooked("at_model", [], met.append)

    class Called(torch.nn.Module):
        def forward(self, _: Any) -> None: ...

    module, thing = Called(), Called()
    reference = weakref.ref(thing, module)
    try:
        del thing
    finally:
        seams.remove()
    assert met == [module] and reference() is None


def test_an_undo_that_fails_keeps_no_other_change_in_the_program() -> None:
    seams, done = Seams(), []
    seams.undo(lambda: done.append("first"))
    seams.undo(fail)
    seams.undo(lambda: done.append("last"))
    with pytest.raises(Injected):
        seams.remove()
    assert done == ["last", "first"]
    seams.remove()


def test_what_a_class_inherits_counts_again() -> None:
    """A class gives no dictionary to take an attribute from: the undo failed, and the replacement stayed."""

    class Base:
        size = 1

    class Derived(Base):
        pass

    for thing in (Derived, Derived()):
        seams = Seams()
        seams.replace(thing, "size", 2)
        assert thing.size == 2
        seams.remove()
        assert thing.size == 1 and "size" not in vars(thing)


def test_a_remedy_that_gives_up_is_told_and_takes_all_others_with_it() -> None:
    told: list[BaseException] = []
    seams = Seams(failed=told.append)
    seams.replace(Thing, "value", 2)
    error = GobrrrError("it cannot keep its word", "leave it out")
    seams.give_up(error)
    assert told == [error] and Thing.value == 1
    seams = Seams()
    with pytest.raises(GobrrrError, match="cannot keep its word"):
        seams.give_up(error)


class Thing:
    value = 1
