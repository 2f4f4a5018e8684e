"""A method whose look-ups are noticed, and which is called as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Lookup:
    """A descriptor that calls `seen(instance, owner's frame)` whenever the method is looked up on an instance."""

    def __init__(self, function: Any, seen: Callable[[Any], object]) -> None:
        self.function, self.seen = function, seen

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self.function
        self.seen(instance)
        return self.function.__get__(instance, owner)
