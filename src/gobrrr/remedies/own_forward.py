"""A module's forward while a remedy stands in its place."""

from __future__ import annotations

import operator
from typing import Any


class OwnForward:
    """What stands in the place of a module's forward. A copy of the module, pickled or not, has its own again."""

    def __init__(self, module: Any, name: str = "forward") -> None:
        self.module, self.forward = module, getattr(module, name)
        self._name, self._before = name, vars(module).get(name)
        self.__wrapped__ = self.forward  # libraries read a forward's signature

    def __reduce__(self) -> tuple[Any, ...]:
        if self._before is None:
            return getattr, (self.module, self._name)
        return operator.getitem, ((self._before,), 0)
