"""Changes that gobrrr makes to torch and Python in this process, and how they are undone: last change first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


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
