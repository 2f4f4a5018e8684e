"""Which code is the user's: not the interpreter's library, not an installed package, not gobrrr."""

from __future__ import annotations

import os
import sys

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
        self._main = ""

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
            return not os.path.realpath(filename).startswith(_launchers())
        if filename.startswith("<"):
            return "ipython" in filename or (filename == "<string>" and main is None)
        path = os.path.realpath(filename)
        if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
            return False
        return not path.startswith(self._roots)


def _launchers() -> tuple[str, ...]:
    """Folders whose scripts only start other programs (console scripts such as torchrun)."""
    return (os.path.join(sys.prefix, "bin") + os.sep,)  # noqa: PTH118
