"""What a data set or a function is, as a digest that another process finds again: its code, its values, its libraries.

Code is bytecode with its constants and the names it uses, so that comments and formatting do not count and a helper
function or a constant of the same program does. Installed packages count by their version. Values are looked at through
attributes, closures and, for objects of C, what pickling them would write (the objects are the caller's own: nothing is
read from a file here). Not seen: what lies in files that a path names, the environment, and how C code works inside.
"""

from __future__ import annotations

import contextlib
import copyreg
import dis
import functools
import hashlib
import io
import logging
import os
import random
import struct
import sys
import sysconfig
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

_MAX_DEPTH = 40
_MOST_ITEMS = 100_000
"""Of a list of objects; of a longer one so many, evenly spread."""
_BLOCK = 10_000
_MOST_BYTES, _PIECES = 256 << 20, 4096
"""Of an array; of a larger one so much, in so many pieces, evenly spread: it may be a mapped file."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_MADE_ANEW = (tuple, frozenset, types.MethodType, types.BuiltinFunctionType, np.dtype, np.generic)
"""What one process has once and the next twice (constants of compiled and of loaded code): no account of sameness."""
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, str, bytes, int, float)
_FLAT = frozenset({bool, int, float, str, bytes, type(None), dict, list, tuple})
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_SKIPPED = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__"}
    | {"__slotnames__", "_abc_impl"}  # which come with the first pickling and the first isinstance
)


def digest(*values: Any) -> str:
    """32 hex digits; the same for equal code and values in another process of the same Python."""
    walk = _Walk()
    for value in values:
        walk.see(value)
    return walk.hash.hexdigest()


class _Walk:
    """One pass through objects. Each is told once; what comes again is told by its number."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.met: dict[int, tuple[int, Any]] = {}  # the object beside, so that its id is not given to another
        self.depth = 0

    def tell(self, *words: object) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
            self.hash.update(struct.pack("<q", len(data)))
            self.hash.update(data)

    def see(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self.tell(kind.__name__, value if kind is bytes else repr(value))
        elif id(value) in self.met:
            self.tell("again", self.met[id(value)][0])
        elif self.depth > _MAX_DEPTH:
            self.tell("deep", name_of(kind))
        else:
            if not isinstance(value, _MADE_ANEW):
                self.met[id(value)] = (len(self.met), value)
            self.depth += 1
            self._object(value, kind)
            self.depth -= 1

    def _object(self, value: Any, kind: type) -> None:
        if kind in (list, tuple):
            self._items(value)
        elif kind in (set, frozenset):
            self.tell(kind.__name__, *sorted(digest(item) for item in value))
        elif kind is dict:
            self.tell("dict", len(value))
            self._items([part for item in value.items() for part in item])
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, np.generic | np.dtype | torch.dtype | torch.device | range):
            self.tell(name_of(kind), repr(value))
        elif isinstance(value, types.ModuleType):
            self._package(value.__name__)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType | functools.partial | property | staticmethod | classmethod):
            self._callable(value)
        elif isinstance(value, types.BuiltinFunctionType | types.WrapperDescriptorType):
            self.tell("builtin", value.__qualname__)
            self.see(getattr(value, "__self__", None))
        elif isinstance(value, os.PathLike):
            self.tell("path", os.fspath(value))
        elif isinstance(value, logging.Logger):
            self.tell("logger", value.name)
        elif isinstance(
            value, io.IOBase | random.Random | np.random.Generator | np.random.RandomState | torch.Generator
        ):
            self.tell("changes with use", name_of(kind))
        else:
            self._instance(value, kind)

    def _items(self, value: Any) -> None:
        """All of a list of strings, numbers and what nests them, at the speed of C; of objects what time allows."""
        self.tell(type(value).__name__, len(value))
        for start in range(0, len(value), _BLOCK):
            block = value[start : start + _BLOCK]
            if not set(map(type, block)) <= _FLAT:
                break
            try:
                self.tell(_encode(block))
            except (OverflowError, UnicodeEncodeError, TypeError, ValueError, RecursionError):
                break
        else:
            return
        for item in value[:: len(value) // _MOST_ITEMS + 1]:
            self.see(item)

    def _tensor(self, value: torch.Tensor) -> None:
        self.tell("tensor", value.dtype, tuple(value.shape))
        if value.layout is torch.strided and value.numel():
            self._bytes(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        self.tell("array", value.dtype.str, value.shape)
        if value.dtype.hasobject:
            self._items(value.reshape(-1).tolist())
        elif value.size:
            self._bytes((value if value.flags.c_contiguous else np.ascontiguousarray(value)).reshape(-1).view(np.uint8))

    def _bytes(self, flat: Any) -> None:
        if len(flat) <= _MOST_BYTES:
            self.hash.update(flat.data)
            return
        size = _MOST_BYTES // _PIECES
        for start in np.linspace(0, len(flat) - size, _PIECES).astype(np.int64).tolist():
            self.hash.update(flat[start : start + size].tobytes())

    def _package(self, module: str) -> None:
        top = module.partition(".")[0]
        self.tell("package", module, str(getattr(sys.modules.get(top), "__version__", "")))

    def _class(self, kind: type) -> None:
        self.tell("class", name_of(kind))
        if _is_installed(kind.__module__):
            self._package(kind.__module__)
            return
        for name, value in vars(kind).items():
            if name not in _SKIPPED:
                self.tell(name)
                self.see(value)
        for base in kind.__bases__:
            self.see(base)

    def _function(self, value: types.FunctionType) -> None:
        self.tell("function", value.__qualname__)
        if _is_installed(value.__module__):
            self._package(value.__module__)
        else:
            self._code(value.__code__, value.__globals__, value.__doc__)
        self.see(value.__defaults__)
        self.see(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is empty yet
                self.see(cell.cell_contents)

    def _code(self, code: types.CodeType, names: Mapping[str, Any], doc: str | None = None) -> None:
        self.tell("code", code.co_code, code.co_varnames, code.co_names, code.co_freevars, code.co_flags)
        for number, constant in enumerate(code.co_consts):
            if number == 0 and constant == doc:
                continue  # the docstring, or the None in its place
            if isinstance(constant, types.CodeType):
                self._code(constant, names)
            else:
                self.see(constant)
        loaded = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        for name in sorted(loaded):  # not all names of the code: attributes are among them
            if name in names:
                self.tell(name)
                self.see(names[name])

    def _callable(self, value: Any) -> None:
        self.tell(type(value).__name__)
        for name in ("__func__", "__self__", "func", "args", "keywords", "fget"):
            self.see(getattr(value, name, None))

    def _instance(self, value: Any, kind: type) -> None:
        self._class(kind)
        known = getattr(value, "_fingerprint", None)
        if isinstance(known, str):  # of Hugging Face's data sets: digest of the data and all that was done to it
            self.tell("fingerprint", known)
            return
        for base in _CONTAINERS:
            if isinstance(value, base):
                self.see(base(value))
        state = dict(getattr(value, "__dict__", {}))
        for name in _slots(kind):
            if hasattr(value, name):
                state[name] = getattr(value, name)
        if state:
            self.see(state)
        elif _is_installed(kind.__module__):
            self._reduced(value)

    def _reduced(self, value: Any) -> None:
        """An object of C, such as a tokenizer: what it is made anew from."""
        reduce = copyreg.dispatch_table.get(type(value))  # of regular expressions, for one
        try:
            parts: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:  # not to be pickled: a lock, a connection
            self.tell("unseen")
            return
        self.see(parts if isinstance(parts, str) else [list(p) if _is_lazy(p) else p for p in parts])


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterable) and hasattr(value, "__next__")


def _slots(kind: type) -> list[str]:
    found = [vars(one).get("__slots__", ()) for one in kind.__mro__]
    return [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots) if name not in _SKIPPED]


def name_of(kind: type) -> str:
    """Without the module for the program's own: a script, a module and a spawned worker differ in it."""
    return f"{kind.__module__}.{kind.__qualname__}" if _is_installed(kind.__module__) else kind.__qualname__


@functools.cache
def _is_installed(module: str | None) -> bool:
    """Whether code is a package's, of which the version tells, and not the program's own."""
    if module is None or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    return str(Path(file).resolve()).startswith(_INSTALLED)
