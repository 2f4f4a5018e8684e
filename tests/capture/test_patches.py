"""What is put into a class, a module or an object comes out again, last change first, and nothing of the program's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from gobrrr.capture.hooks.lookup import Patches


class Base:
    """Has a method that its subclass inherits."""

    def method(self) -> str:
        """Its own."""
        return "base"


class Own(Base):
    """Nothing of its own."""


def patched(owner: Any, name: str, *values: Any) -> Patches:
    patches = Patches()
    for value in values:
        patches.replace(owner, name, value)
    return patches


def test_the_very_object_that_stood_there_comes_back() -> None:
    before = Base.__dict__["method"]
    patches = patched(Base, "method", lambda self: "first", lambda self: "second")
    assert Own().method() == "second" and len(patches) == 2
    patches.take_out()
    assert Base.__dict__["method"] is before and not patches
    patches.take_out()


def test_what_was_inherited_is_inherited_again() -> None:
    instance, module = Own(), ModuleType("module")
    for owner in (Own, instance):
        patched(owner, "method", lambda *_: "ours").take_out()
        assert "method" not in vars(owner) and Own().method() == "base"
    patched(module, "name", 1).take_out()
    assert not hasattr(module, "name")


def test_what_the_program_puts_there_later_stays() -> None:
    instance: Any = Own()
    patches = patched(instance, "method", "ours")
    instance.method = "theirs"
    patches.take_out()
    assert instance.method == "theirs"
    patches = patched(instance, "method", "ours")
    del instance.method
    patches.take_out()
    assert "method" not in vars(instance)


def test_the_first_so_many_can_stay() -> None:
    order: list[int] = []
    patches = Patches(lambda number=number: order.append(number) for number in range(4))
    patches.take_out(but=2)
    assert order == [3, 2] and len(patches) == 2
    patches.take_out()
    assert order == [3, 2, 1, 0]


def test_one_that_fails_keeps_none_of_the_others() -> None:
    order: list[str] = []

    def fails() -> None:
        raise OSError("mine")

    patches = Patches([lambda: order.append("first"), fails, lambda: order.append("last")])
    with pytest.raises(OSError, match="mine"):
        patches.take_out()
    assert order == ["last", "first"] and not patches
