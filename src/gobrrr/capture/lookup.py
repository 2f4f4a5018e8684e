"""A method whose look-ups are noticed, and which is called as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.capture.unseen import is_the_programs


def plain(method: Any) -> Any:
    """The function itself, whatever of ours is in front of it: a recipe's remedies look too."""
    while hasattr(method, "function"):
        method = method.function
    return method


class Lookup:
    """A descriptor that calls `seen(instance)` whenever the method is looked up on an instance. What fails in
    there is told to `failed` and goes no further, unless it is the program's own; without `failed`, `seen` sees to that
    itself."""

    def __init__(
        self, function: Any, seen: Callable[[Any], object], failed: Callable[[BaseException], object] | None = None
    ) -> None:
        self.function, self.seen, self.failed = function, seen, failed

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return plain(self.function)
        try:
            self.seen(instance)
        except RecursionError:
            pass  # the stack is full: the program will find out by itself
        except BaseException as error:
            if self.failed is None:
                raise
            self.failed(error)
            if is_the_programs(error):
                raise
        return self.function.__get__(instance, owner)


class ModuleCall:
    """torch.nn.Module.__call__ behind a Lookup, or another descriptor, for as long as it is wanted.

    torch.fx puts a method of its own there while it traces, and then what `Module.__call__` gave it: the plain function
    (torch.compile does so in a model's first call). `again()` notices and puts the descriptor back.
    """

    def __init__(self, descriptor: Callable[[Any], Any]) -> None:
        from torch.nn import Module

        owner: Any = Module
        self._owner = owner
        self.plain = owner.__dict__["__call__"]
        self._mine = descriptor(self.plain)
        self._owner.__call__ = self._mine
        self._wanted = True

    def again(self) -> None:
        """Put it back where somebody has put back what it replaced."""
        if self._wanted and self._owner.__dict__["__call__"] is not self._mine:
            found = self._owner.__dict__["__call__"]
            if found is self.plain or found is plain(self.plain):
                self._owner.__call__ = self._mine

    def remove(self) -> None:
        """Leave what stood there; what the program has set since stays. Safe to call twice."""
        self._wanted = False
        if self._owner.__dict__["__call__"] is self._mine:
            self._owner.__call__ = self.plain
