"""A method whose look-ups are noticed, and which is called as ever."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.patches import Patches
from gobrrr.capture.hooks.transform_guard import is_the_programs


def plain(method: Any) -> Any:
    """The function itself, whatever of ours is in front of it: a recipe's remedies look too."""
    while hasattr(method, "function"):
        method = method.function
    return method


def top_level() -> Callable[[FrameType | None], bool]:
    """Says of a frame whether the program's own loop is what runs there: no module's call is at it or above it, and no
    backward pass, whose recomputation is no forward of the program's."""
    from torch.autograd import graph
    from torch.nn import Module

    outer, inner = plain(Module.__dict__["__call__"]).__code__, plain(Module.__dict__["_call_impl"]).__code__
    backward = graph._engine_run_backward.__code__

    def is_top_level(frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code is inner or code is outer or code is backward:
                return False
            frame = frame.f_back
        return True

    return is_top_level


class Lookup:
    """A descriptor that calls `seen(instance)` whenever the method is looked up on an instance; a function that it
    returns is the method of this instance. What fails in there is told to `failed` and goes no further, unless it is
    the program's own; without `failed`, `seen` sees to that itself."""

    def __init__(
        self,
        function: Any,
        seen: Callable[[Any], Callable[..., Any] | None],
        failed: Callable[[BaseException], object] | None = None,
    ) -> None:
        self.function, self.seen, self.failed = function, seen, failed

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return plain(self.function)
        function: Any = None
        try:
            function = self.seen(instance)
        except RecursionError:
            pass  # the stack is full: the program will find out by itself
        except BaseException as error:
            if self.failed is None:
                raise
            self.failed(error)
            if is_the_programs(error):
                raise
        return (function or self.function).__get__(instance, owner)


def watch_replays(
    seen: Callable[[Any], object], patches: Patches, failed: Callable[[BaseException], object] | None = None
) -> None:
    """`seen(graph)` whenever the program's own loop replays a CUDA graph, not a module of its, compiled say: torch's
    replay() looks up that of its base class, which a build without CUDA does not have."""
    from torch import _C

    is_top_level, owner = top_level(), getattr(_C, "_CUDAGraph", object)

    def lookup(graph: Any) -> None:
        if is_top_level(sys._getframe(1).f_back):
            seen(graph)

    if "replay" in vars(owner):
        patches.replace(owner, "replay", Lookup(vars(owner)["replay"], lookup, failed))


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


class EngineLookup:
    """Stands before the autograd engine, which torch.autograd.graph looks up on a class for each backward pass that a
    program starts, by whichever function: told of the look-up, and hands out the engine itself.

    It lies on the class's class and is taken before the class's own attribute, which stays what it is.
    """

    _NAME = "_execution_engine"

    def __init__(self, seen: Callable[[], object], failed: Callable[[BaseException], object]) -> None:
        from torch.autograd import Variable

        self._seen, self._failed = seen, failed
        self._meta: Any = type(Variable)
        self._there = self._NAME not in vars(self._meta)
        if self._there:
            setattr(self._meta, self._NAME, self)

    def __get__(self, owner: Any, _: type | None = None) -> Any:
        if owner is None:
            return self
        try:
            self._seen()
        except RecursionError:
            pass  # the stack is full: the program will find out by itself
        except BaseException as error:
            self._failed(error)
            if is_the_programs(error):
                raise
        return next(vars(kind)[self._NAME] for kind in owner.__mro__ if self._NAME in vars(kind))

    def __set__(self, owner: Any, value: Any) -> None:
        self.remove()  # the program puts another engine there
        setattr(owner, self._NAME, value)

    def remove(self) -> None:
        """Take it away; safe to call twice."""
        if self._there and vars(self._meta).get(self._NAME) is self:
            delattr(self._meta, self._NAME)
