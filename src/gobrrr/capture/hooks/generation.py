"""When does transformers' generate() begin, and when is each of its tokens there?

Seen by look-ups of its methods, without a frame of ours: of generate() itself, and of the question that every way of
decoding asks before each further token.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.lookup import Lookup, Patches

LIBRARY = "transformers.generation"
BEGINS, GOES_ON = "generate", "_has_unfinished_sequences"


def mixin() -> Any:
    """The class that has generate(); None while the program has not imported it, or where it is another one."""
    found = getattr(sys.modules.get(f"{LIBRARY}.utils"), "GenerationMixin", None)
    return found if found is not None and BEGINS in vars(found) else None


class Awaited:
    """A finder of modules that finds none: calls `then` once the module of the class above, or `name`, is there, or
    now."""

    def __init__(self, then: Callable[[], object], patches: Patches, name: str = f"{LIBRARY}.utils") -> None:
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


def is_nested(frame: FrameType | None) -> bool:
    """Whether the library itself calls generate(), of an assistant say."""
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(LIBRARY)


def watch_generation(
    begins: Callable[[Any], Any], goes_on: Callable[[Any, Any], None], patches: Patches,
    failed: Callable[[BaseException], object] | None = None,
) -> None:  # fmt: skip
    """`begins(model)` where the program calls generate(); what it returns is called in its place. `goes_on(ids,
    unfinished)` before the first token and behind each: rows x length of all so far, and which rows are not over (None
    where that is not told)."""
    current: list[int] = []

    def called(model: Any) -> Any:
        if is_nested(_caller()):
            return None
        current[:] = [id(model)]
        return begins(model)

    def asked(model: Any) -> None:
        if current == [id(model)]:
            ids, unfinished = _locals(_caller())
            if len(getattr(ids, "shape", ())) == 2:
                goes_on(ids, unfinished)

    if (owner := mixin()) is None:
        return
    for name, seen in ((BEGINS, called), (GOES_ON, asked)):
        if name in vars(owner):
            patches.replace(owner, name, Lookup(vars(owner)[name], seen, failed))


def _caller() -> FrameType:
    """Who looks a method up, behind however many look-ups of ours."""
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__") == Lookup.__module__:
        frame = frame.f_back
    found: FrameType = frame
    return found


def _locals(frame: FrameType) -> tuple[Any, Any]:
    """What a loop of the library's knows of its sequences."""
    found = frame.f_locals
    told = found.get("input_ids"), found.get("unfinished_sequences")
    if type(found) is dict:  # a copy, which would hold the loop's tensors (logits) beyond their time
        found.clear()
    return told
