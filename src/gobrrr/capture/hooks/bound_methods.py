"""Calls of a module through a method that the program has kept, without looking it up again: seen one deeper.

transformers' generate() does so: `forward = self.__call__`, then once per token.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.lookup import Lookup

_COMPILER = "torch._dynamo"


class KeptCalls:
    """From `begin()` on Module._call_impl, which every call looks up, stands behind a Lookup. torch.compile looks there
    too and would trace it: before it does, the method is put back for good."""

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
