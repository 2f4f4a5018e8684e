"""Which names code uses, what they stand for, and what is the program's own."""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import importlib.util
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Also of an environment beneath this one, of the user, and of Debian."""


def name_of(kind: type) -> str:
    """Without the module for the program's own: a script, a module and a spawned worker differ in it."""
    return f"{kind.__module__}.{kind.__qualname__}" if is_installed(kind.__module__) else kind.__qualname__


@functools.cache
def is_installed(module: str | None) -> bool:
    """Whether code is a package's, of which the version tells, and not the program's own."""
    if module is None or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    place = Path(file).resolve()
    return str(place).startswith(_INSTALLED) or not _PACKAGES.isdisjoint(place.parts)


def mangled(kind: type, name: str) -> str:
    """A private name as the class keeps it."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def named(code: types.CodeType) -> list[str]:
    """All names of a function and of those within it: globals, attributes, modules."""
    inner = [one for constant in code.co_consts if isinstance(constant, types.CodeType) for one in named(constant)]
    return sorted({*code.co_names, *inner})


def loaded(code: types.CodeType) -> list[str]:
    """Its global names; not all names of the code: attributes are among them."""
    return sorted({one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")})


def imported(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    """The program's own modules that a function imports, in their order. What is not loaded yet is loaded, as the
    first sample would do: else the fingerprint would be another one after it."""
    before: list[Any] = []
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            level = next((number for number in reversed(before) if type(number) is int), 0)
            yield from _module(level, str(one.argval), names)
        before = [*before, one.argval][-2:]


def _module(level: int, name: str, names: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    with contextlib.suppress(Exception):  # it is not there, or fails: told where a sample needs it
        full = importlib.util.resolve_name("." * level + name, names.get("__package__"))
        parts = full.split(".")
        if parts[0] in sys.stdlib_module_names:
            return
        spec = sys.modules.get(full) or importlib.util.find_spec(full)
        file = getattr(spec, "__file__", None) or getattr(spec, "origin", None)
        if spec is None or (file and str(Path(file).resolve()).startswith(_INSTALLED)):
            return
        yield importlib.import_module(full)
        if len(parts) > 1 and not level:
            yield sys.modules[parts[0]]  # what `import a.b` gives
