"""Which code is the user's, not a library's nor ours, and which lines of it led to a frame?"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from gobrrr.capture.hooks.transform_guard import variables

_OWN = os.path.abspath(__file__).rpartition(os.sep + "capture")[0]  # noqa: PTH100  (pathlib costs 10 ms here)


def _library_roots() -> tuple[str, ...]:
    """The standard library's folders; installed packages are known by the name of theirs."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    roots = {os.path.join(prefix, sys.platlibdir, version) for prefix in (sys.base_prefix, sys.base_exec_prefix)}  # noqa: PTH118
    roots.add(os.path.dirname(os.__file__))  # noqa: PTH120
    return tuple(sorted(os.path.realpath(root) + os.sep for root in roots)) + (_OWN + os.sep,)  # noqa: RUF005


class UserFiles:
    """Answers `is_user(filename)`, cached. The program's own main file is the user's wherever it lies."""

    def __init__(self) -> None:
        self._roots = _library_roots()
        self._known: dict[str, bool] = {}

    def is_user(self, filename: str) -> bool:
        """Whether code of this file is the user's."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._decide(filename)
        return known

    def sources(self) -> list[str]:
        """The user's source files that were met, main file first."""
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        known = [file for file, is_user in self._known.items() if is_user and file != main]
        return [os.path.realpath(file) for file in ([main] if main else []) + known][:64]

    def _decide(self, filename: str) -> bool:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if main and os.path.abspath(filename) == os.path.abspath(main):  # noqa: PTH100
            # Scripts that only start other programs, torchrun say, lie there.
            return not os.path.realpath(filename).startswith(os.path.join(sys.prefix, "bin") + os.sep)  # noqa: PTH118
        if filename.startswith("<"):
            return "ipython" in filename or (filename == "<string>" and main is None)
        path = os.path.realpath(filename)
        package, dot, _ = os.path.basename(path).removesuffix(".py").partition(".")  # noqa: PTH119
        if dot and (made_by := getattr(sys.modules.get(package), "__file__", None)):  # a library wrote it for itself
            return self.is_user(made_by)
        if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
            return False
        packages = (os.path.realpath(each) + os.sep for each in sys.path[1:] if _holds_packages(each))
        installed = (folder for folder in packages if not os.path.realpath(main or "").startswith(folder))
        return not path.startswith((*self._roots, *installed))


@functools.cache
def _holds_packages(folder: str) -> bool:
    """Whether pip installed into it, with --target say."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))  # noqa: PTH208
    except OSError:
        return False


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
    return issubclass(kind, Module) and is_method(code, kind)


def is_method(code: CodeType, kind: type) -> bool:
    """Whether a class has a method of this code, its own or a base's, decorated or not."""
    methods = (vars(base).get(code.co_name) for base in kind.__mro__)
    return any(inspect.unwrap(each).__code__ is code for each in methods if isinstance(each, FunctionType))


def _line(frame: Any) -> dict[str, Any]:
    return {"file": frame.f_code.co_filename, "line": frame.f_lineno, "function": frame.f_code.co_name}


def defined(function: Any) -> dict[str, Any] | None:
    """Where a function of the user's begins, of an object its __call__; None of a library's, and of what is neither."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType | MethodType | type):
        kinds = type(function).__mro__  # the object itself is not asked: a proxy would make what it is for
        function = next((vars(kind)["__call__"] for kind in kinds if "__call__" in vars(kind)), None)
    plain = isinstance(function, FunctionType | MethodType)
    code = getattr(inspect.unwrap(function), "__code__", None) if plain else None
    if code is None or not _USER.is_user(code.co_filename):
        return None
    return {"file": code.co_filename, "line": code.co_firstlineno, "function": code.co_name}
