"""How is a method of torch's wrapped so that calls are noticed, work as before, and the wrapper can be removed?"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.transform_guard import is_the_programs


class Patches(list[Callable[[], object]]):
    """Calls that undo each change, in the order in which the changes were made. A list, for hooks ask at every step
    whether it is empty."""

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Give a class, a module or an object another attribute. What the program puts there later stays, and may
        call ours still: that has to be inert then. What was inherited is inherited again."""
        had, before = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, value)

        def undo() -> None:
            if vars(owner).get(name) is not value:
                return
            if had:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

        self.append(undo)

    def take_out(self, but: int = 0) -> None:
        """Undo all but the first so many; safe to call twice. One that fails keeps none of the others, and its error is
        raised when all are through."""
        with contextlib.ExitStack() as every:
            while len(self) > but:
                every.callback(self.pop(but))


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
    (torch.compile does so in a model's first call). `again()` notices and puts the descriptor back; behind each tracing
    that is asked by itself, for a program that only infers may look nowhere else before its first call.
    """

    def __init__(self, descriptor: Callable[[Any], Any]) -> None:
        from torch.nn import Module

        owner: Any = Module
        self._owner = owner
        self.plain = owner.__dict__["__call__"]
        self._mine = descriptor(self.plain)
        self._wanted = True
        self._patches = Patches()
        tracing: Any = getattr(sys.modules.get("torch.fx._symbolic_trace"), "_Patcher", None)
        if tracing is not None:
            self._patches.replace(tracing, "revert_all_patches", self._behind(tracing.revert_all_patches))
        self._owner.__call__ = self._mine  # last: what fails before has left nothing there

    def _behind(self, ends: Callable[..., Any]) -> Callable[..., Any]:
        def revert_all_patches(*args: Any) -> Any:
            try:
                return ends(*args)
            finally:
                self.again()

        return revert_all_patches

    def again(self) -> None:
        """Put it back where somebody has put back what it replaced."""
        if self._wanted and self._owner.__dict__["__call__"] is not self._mine:
            found = self._owner.__dict__["__call__"]
            if found is self.plain or found is plain(self.plain):
                self._owner.__call__ = self._mine

    def remove(self) -> None:
        """Leave what stood there; what the program has set since stays. Safe to call twice."""
        self._wanted = False
        self._patches.take_out()
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


_COMPILER = "torch._dynamo"


class KeptCalls:
    """Calls of a module through a method that the program has kept and does not look up again: transformers' generate()
    does so once per token. They are seen one deeper: from `begin()` on Module._call_impl, which every call looks up,
    stands behind a Lookup. torch.compile looks there too and would trace it: before it does, it is put back for good.
    """

    def __init__(self, seen: Callable[[Any, FrameType], None], failed: Callable[[BaseException], object]) -> None:
        """`seen(module, frame)`: a module is called; the frame is that of torch's own __call__."""
        self._seen, self._failed = seen, failed
        self._plain: Any = None
        self._never = False

    @property
    def on(self) -> bool:
        """Whether it stands."""
        return self._plain is not None

    def begin(self) -> None:
        """Put it there, once, unless the program compiles."""
        if self.on or self._never or not self._before_compiling():
            return
        from torch.nn import Module

        owner: Any = Module
        self._plain = owner.__dict__["_call_impl"]
        self._mine = Lookup(self._plain, lambda module: self._seen(module, sys._getframe(2)), self._failed)
        owner._call_impl = self._mine

    def _before_compiling(self) -> bool:
        """Have this taken away before anything is traced; False where that cannot be."""
        if _COMPILER not in sys.modules:
            sys.meta_path.insert(0, self)
            return True
        handler = getattr(sys.modules.get(f"{_COMPILER}.callback"), "callback_handler", None)
        if handler is None:
            return False
        handler.register_start_callback(self._compiles)
        return True

    def find_spec(self, name: str, *where: Any) -> Any:
        """A finder that finds nothing, until the compiler is being imported: then it goes. importlib is going through
        the list and would pass over the finder that takes its place, so that one is asked here."""
        if name != _COMPILER:
            return None
        self._compiles()
        finders = sys.meta_path
        place = finders.index(self)
        del finders[place]
        asked = getattr(finders[place], "find_spec", None) if place < len(finders) else None
        return asked(name, *where) if asked is not None else None

    def _compiles(self, *_: object) -> None:
        self._never = True
        self._put_back()

    def remove(self) -> None:
        """Put back what stood there, and watch for the compiler no more; safe to call twice."""
        self._put_back()
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        handler = getattr(sys.modules.get(f"{_COMPILER}.callback"), "callback_handler", None)
        if handler is not None and self._compiles in handler.start_callbacks:
            handler.remove_start_callback(self._compiles)

    def _put_back(self) -> None:
        from torch.nn import Module

        owner: Any = Module
        if self.on and owner.__dict__["_call_impl"] is self._mine:
            owner._call_impl = self._plain
        self._plain = None


def starters() -> list[tuple[Any, str]]:
    """The methods by which torch's profilers start."""
    from torch.autograd import profiler

    legacy = sys.modules.get("torch.autograd.profiler_legacy")
    found = [(profiler.profile, "_prepare_trace"), (profiler.emit_nvtx, "__enter__"), (profiler.emit_itt, "__enter__")]
    return [*found, (legacy.profile, "_start_trace")] if legacy is not None else found


class Seat:
    """One of torch's global optimizer hooks. Another takes its seat while torch iterates over the table: its size and
    order stay."""

    def __init__(self, register: Callable[[Any], Any], own: Callable[..., None]) -> None:
        self.own = own
        self.handle = register(own)

    def becomes(self, hook: Callable[..., None]) -> None:
        """Call this one from now on, if the seat is still there."""
        seats = self.handle.hooks_dict_ref()
        if seats is not None and self.handle.id in seats:
            seats[self.handle.id] = hook


def nothing(*_: Any) -> None:
    """Do nothing: stands in during a rest for a hook that may not leave its place."""
