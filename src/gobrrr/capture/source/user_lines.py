"""Which lines of the user's led to a frame, and where a function of theirs begins."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from gobrrr.capture.hooks.transform_guard import variables
from gobrrr.capture.source.user_files import UserFiles

_USER = UserFiles()


def user_line(frame: Any) -> dict[str, Any] | None:
    """The innermost user line at or above a frame."""
    return next(user_lines(frame), None)


def user_lines(frame: Any) -> Iterator[dict[str, Any]]:
    """The user's lines at or above a frame, the innermost first."""
    while frame is not None:
        if _USER.is_user(frame.f_code.co_filename):
            yield _line(frame)
        frame = frame.f_back


def calling_line(frame: Any) -> dict[str, Any] | None:
    """The innermost user line that calls a model, at or above a frame: not one inside a module's own method, whose loop
    is its caller's, unless a library calls that."""
    found = None
    while frame is not None:
        if _USER.is_user(frame.f_code.co_filename):
            found = _line(frame)
            if not _is_modules(frame):
                break
        elif found is not None and not str(frame.f_globals.get("__name__")).startswith("torch."):
            break
        frame = frame.f_back
    return found


def _is_modules(frame: Any) -> bool:
    """Whether it runs a method of the torch.nn.Module that it is given first, no function of one (`evaluate(model)`).
    By its type: a proxy that is asked makes what it is for."""
    from torch.nn import Module

    code = frame.f_code
    kind = type(variables(frame).get(code.co_varnames[0])) if code.co_argcount else object
    if not issubclass(kind, Module):
        return False
    methods = (vars(base).get(code.co_name) for base in kind.__mro__)
    return any(inspect.unwrap(each).__code__ is code for each in methods if isinstance(each, FunctionType))


def _line(frame: Any) -> dict[str, Any]:
    return {"file": frame.f_code.co_filename, "line": frame.f_lineno, "function": frame.f_code.co_name}


def defined(function: Any) -> dict[str, Any] | None:
    """Where a function of the user's begins; None of a library's, and of what is no function."""
    plain = isinstance(function, FunctionType | MethodType)
    code = getattr(inspect.unwrap(function), "__code__", None) if plain else None
    if code is None or not _USER.is_user(code.co_filename):
        return None
    return {"file": code.co_filename, "line": code.co_firstlineno, "function": code.co_name}
