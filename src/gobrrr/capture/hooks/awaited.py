"""Tells when a module is there that the program may import later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from gobrrr.capture.hooks.lookup import Patches


class Awaited:
    """A finder of modules that finds none: calls `then` once the module `name` is there, or now."""

    def __init__(self, name: str, then: Callable[[], object], patches: Patches) -> None:
        self._then, self._name = then, name
        if name in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, self)
            patches.append(self._leave)

    def _leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: Any) -> Any:
        """Stand aside; for that very module, give what others find, and hear when it is loaded."""
        if name != self._name:
            return None
        self._leave()
        spec: Any = find_spec(name)
        sys.meta_path.insert(0, self)  # who asks for it may not load it
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self._leave()
                self._then()

            spec.loader.exec_module = exec_module
        return spec
