"""Keeps torch.compile away from gobrrr's own functions: some of them run inside a compiled region's frames."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, TypeVar

Hook = TypeVar("Hook", bound=Callable[..., Any])


def hide_own_code(*packages: str) -> None:
    """Mark all code of gobrrr.capture, and of further packages, as not to be compiled: dynamo would trace our hooks,
    and warn of them."""
    skip = _skip()
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(("gobrrr.capture", "gobrrr.system", *packages)):
            for code in _codes(vars(module), name):
                skip(code)


def called_from_compiled(hook: Hook) -> Hook:
    """A hook that compiled code (an optimizer's step) calls and does not trace: it would warn of a builtin in it."""
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return hook


def _skip() -> Callable[[CodeType], None] | None:
    """torch's own way to leave a code object alone, without importing torch._dynamo (a second of time)."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "skip_code"):  # until 2.6
        skip: Callable[[CodeType], None] = eval_frame.skip_code
        return skip
    if not hasattr(eval_frame, "_FrameExecStrategy"):
        return None
    action = eval_frame._FrameAction.SKIP
    return lambda code: eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(action, action))


def _codes(names: dict[str, object], module: str) -> Iterator[CodeType]:
    for value in list(names.values()):
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(dict(vars(value)), module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
