"""Digest a data set or a function so that another process finds the same: its code, its values, its libraries.

Code is bytecode with its constants and the names it uses, so that comments and formatting do not count and a helper
function or a constant of the program does, of another module too (names.py). Installed packages count by their version.
Values are looked at through attributes, closures and, for objects of C, what pickling them would write (the objects are
the caller's own: nothing is read from a file here); arrays and tensors by their bytes (raw_bytes.py). Not seen: what
lies in files that a path names, the environment, and how C code works inside.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import functools
import hashlib
import io
import itertools
import logging
import os
import random
import struct
import sys
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from gobrrr.data.sample_cache import raw_bytes
from gobrrr.data.sample_cache.names import imported, is_installed, loaded, mangled, name_of, named
from gobrrr.errors import GobrrrError

_MAX_DEPTH = 40
"""Levels of nesting: deeper values are told later, from the top, whole and without an overflow of the stack."""
_MOST_ITEMS = 100_000
"""Items of a list of objects that are looked at; of a longer list so many, evenly spread."""
_BLOCK = 1000
"""Items of a list told at once; proposed: few calls, little memory; a timing of long lists would settle it."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_MADE_ANEW = (tuple, frozenset, types.MethodType, types.BuiltinFunctionType, np.dtype, np.generic)
"""Types of which one process has one object and the next two equal ones (constants of compiled and of loaded code):
whether two are the same object is not told."""
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, str, bytes, int, float)
_FLAT: dict[type, int] = {bool: 0, int: 1, float: 2, str: 3, bytes: 4, type(None): 5, dict: 6, list: 7, tuple: 8}
"""Types that msgpack tells fully once their types are told too: it has one word for a list, a tuple and a set."""
_encode = msgspec.msgpack.Encoder().encode
_CHANGING = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet, io.IOBase, random.Random,
             np.random.Generator, np.random.RandomState, torch.Generator)  # fmt: skip
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_FORMAT = ("_format_type", "_format_kwargs", "_format_columns", "_output_all_columns")
"""Attributes of Hugging Face's data sets: how rows are given out, with the function of with_transform."""
_SKIPPED = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__"}
    | {"__slotnames__", "_abc_impl"}  # which come with the first pickling and the first isinstance
)


def digest(*values: Any, strict: bool = False) -> str:
    """32 hex digits; the same for equal code and values in another process of the same Python.

    Raises GobrrrError for what cannot be told: a tensor without memory of a subclass, sets in sets without end.
    `strict`: also for what is told by its type alone, since it changes by being used (a generator, an open file) or C
    keeps it to itself, and for what looking would change; and of large arrays and lists all is looked at, not a part.
    """
    walk = _Walk(strict)
    try:
        return walk.digest(*values)
    except GobrrrError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise GobrrrError(
            f"the data set or function has no fingerprint: {reason}", "name its version yourself: key=..."
        ) from error


class _Walk:
    """One pass through objects. Each is told once; what comes again is told by its number."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.hash = hashlib.blake2b(digest_size=16)
        self.met: dict[int, tuple[int, Any]] = {}  # the object beside, so that its id is not given to another
        self.depth = 0
        self.later: collections.deque[Any] = collections.deque()
        self.named: set[tuple[int, str]] = set()  # modules and the names of them that were told

    def digest(self, *values: Any) -> str:
        for value in values:
            self.see(value)
        while self.later:
            self.see(self.later.popleft())
        return self.hash.hexdigest()

    def tell(self, *words: object) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
            self.hash.update(struct.pack("<q", len(data)))
            self.hash.update(data)

    def see(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self.tell(kind.__name__, value if kind is bytes else hex(value) if kind is int else repr(value))
        elif id(value) in self.met:
            self.tell("again", self.met[id(value)][0])
        elif self.depth > _MAX_DEPTH:
            self.tell("later", name_of(kind))
            self.later.append(value)
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
            self._set(value, kind)
        elif kind in (dict, types.MappingProxyType):
            self.tell(kind.__name__, len(value))
            self._items(list(value))
            self._items(list(value.values()))
        elif isinstance(value, torch.Tensor):
            self._tensor(value, kind)
        elif isinstance(value, np.ndarray):
            self._array(value, kind)
        elif kind in _VIEWS:
            self.see([list(item) if type(item) is tuple else item for item in value])
        elif kind is memoryview:
            self.tell("memoryview", value.format, value.shape, value.tobytes())
        elif isinstance(value, np.generic | np.dtype | torch.dtype | torch.device | range):
            self.tell(name_of(kind), repr(value))
        elif isinstance(value, types.ModuleType):
            self._module(value, [name for name in vars(value) if not name.startswith("__")])
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType | functools.partial | property | staticmethod | classmethod):
            self._callable(value)
        elif isinstance(value, types.BuiltinFunctionType | types.WrapperDescriptorType):
            self.tell("builtin", value.__qualname__)
            self.see(getattr(value, "__self__", None))
        elif isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType):
            self.tell("descriptor", value.__qualname__)
        elif isinstance(value, os.PathLike):
            self.tell("path", os.fspath(value))
        elif isinstance(value, logging.Logger):
            self.tell("logger", value.name)
        elif isinstance(value, io.BytesIO | io.StringIO):
            self.tell(name_of(kind))
            self.see(value.getvalue())
        elif isinstance(value, _CHANGING):
            self._by_type("changes with use", kind)
        else:
            self._instance(value, kind)

    def _by_type(self, why: str, kind: type) -> None:
        if self.strict:
            raise GobrrrError(
                f"what it holds cannot be looked at: a {name_of(kind)}", "name its version yourself: key=..."
            )
        self.tell(why, name_of(kind))

    def _items(self, value: Sequence[Any]) -> None:
        """All of a list of strings, numbers and what nests them, at the speed of C; of objects what time allows."""
        self.tell(type(value).__name__, len(value))
        step = 1 if self.strict else len(value) // _MOST_ITEMS + 1
        for start in range(0, len(value), _BLOCK):
            block = value[start : start + _BLOCK]
            try:
                parts = [*_types(block), _encode(block)]
            except (KeyError, OverflowError, UnicodeEncodeError, TypeError, ValueError, RecursionError):
                for item in block[-start % step :: step]:
                    self.see(item)
            else:
                self.tell(*parts)

    def _set(self, value: Iterable[Any], kind: type) -> None:
        """Each member by itself, since they have no order: it knows what holds the set, and not the other members."""
        digests, known = [], len(self.met)
        for item in value:
            one = _Walk(self.strict)
            one.met = self.met
            digests.append(one.digest(item))
            while len(self.met) > known:
                self.met.popitem()
        self.tell(kind.__name__, *sorted(digests))

    def _tensor(self, value: torch.Tensor, kind: type) -> None:
        self.tell("tensor", value.dtype, tuple(value.shape) if not value.is_nested else "nested", value.layout)
        own = kind not in (torch.Tensor, torch.nn.Parameter)
        if own:
            self._class(kind)
        if own or vars(value):
            self.see(vars(value))
        parts = raw_bytes.parts_of(value)
        if parts is not None:
            self.see(parts)
        elif value.device.type == "meta":
            self.tell("meta")
        elif value.numel():
            raw_bytes.feed_tensor(self.hash.update, value, whole=self.strict)

    def _array(self, value: np.ndarray[Any, Any], kind: type) -> None:
        self.tell("array", value.dtype.str, value.dtype, value.shape)
        if kind not in (np.ndarray, np.memmap):
            self._class(kind)
            if isinstance(value, np.ma.MaskedArray):
                self.see([np.ma.getmaskarray(value), value.fill_value])
            else:
                self.see(getattr(value, "__dict__", None))
        plain = np.asarray(value)
        if plain.dtype.hasobject:
            self._items(plain.reshape(-1).tolist())
        elif plain.size:
            raw_bytes.feed(self.hash.update, plain, whole=self.strict)

    def _package(self, module: str) -> None:
        top = module.partition(".")[0]
        self.tell("package", module, str(getattr(sys.modules.get(top), "__version__", "")))

    def _module(self, module: types.ModuleType, names: Iterable[str]) -> None:
        """See what a module of the program's own has under these names, in modules within it too."""
        if is_installed(module.__name__):
            self._package(module.__name__)
            return
        self.tell("module")
        for name in sorted(set(names) & vars(module).keys()):
            if (id(module), name) not in self.named:
                self.named.add((id(module), name))
                self.tell(name)
                self._used(vars(module)[name], names)

    def _used(self, value: Any, names: Iterable[str]) -> None:
        """See what code with these names can use: of a module only what it names."""
        if isinstance(value, types.ModuleType):
            self._module(value, names)
        else:
            self.see(value)

    def _class(self, kind: type) -> None:
        self.tell("class", name_of(kind))
        if is_installed(kind.__module__):
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
        names: list[str] = []
        if is_installed(value.__module__):
            self._package(value.__module__)
        else:
            names = named(value.__code__)
            self._code(value.__code__, value.__globals__, value.__doc__)
        self.see(value.__defaults__)
        self.see(value.__kwdefaults__)
        if vars(value):
            self.see(vars(value))
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is empty yet
                self._used(cell.cell_contents, names)

    def _code(self, code: types.CodeType, names: Mapping[str, Any], doc: str | None = None) -> None:
        self.tell("code", code.co_code, code.co_varnames, code.co_names, code.co_freevars, code.co_flags)
        for number, constant in enumerate(code.co_consts):
            if number == 0 and constant == doc:
                continue  # the docstring, or the None in its place
            if isinstance(constant, types.CodeType):
                self._code(constant, names)
            else:
                self.see(constant)
        names_used = named(code)
        for name in loaded(code):
            if name in names:
                self.tell(name)
                self._used(names[name], names_used)
        for module in imported(code, names):
            self._module(module, names_used)

    def _callable(self, value: Any) -> None:
        self.tell(type(value).__name__)
        for name in ("__func__", "__self__", "func", "args", "keywords", "fget"):
            self.see(getattr(value, name, None))

    def _instance(self, value: Any, kind: type) -> None:
        self._class(kind)
        installed = is_installed(kind.__module__)
        theirs = kind.__module__.startswith("gobrrr.") or (installed and kind.__module__.startswith("datasets."))
        known = getattr(value, "_fingerprint", None) if theirs else None
        if isinstance(known, str):  # of Hugging Face's data sets: digest of the data and all that was done to it
            self.tell("fingerprint", known)
            self.see([getattr(value, name, None) for name in _FORMAT])
            return
        for base in _CONTAINERS:
            if isinstance(value, base):
                self.see(base(value))
        if self.strict and _is_changed_by_looking(value, kind):
            self._by_type("changed by being looked at", kind)
        told = _says_itself(kind) and self._reduced(value)
        state = dict(getattr(value, "__dict__", {}))
        for name in _slots(kind):
            if hasattr(value, name):
                state[name] = getattr(value, name)
        if state and not (told and installed):
            self.see(state)
        elif installed and not told and not self._reduced(value):
            self._by_type("unseen", kind)

    def _reduced(self, value: Any) -> bool:
        """An object of C, such as a tokenizer: what it is made anew from. Whether it says so."""
        reduce = copyreg.dispatch_table.get(type(value))  # of regular expressions, for one
        try:
            parts: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:  # not to be pickled: a lock, a connection
            return False
        self.see(parts if isinstance(parts, str) else [list(p) if isinstance(p, Iterator) else p for p in parts])
        return not isinstance(parts, str)  # the name of a function, of which its wrapper says more


def _types(block: Sequence[Any]) -> list[bytes]:
    """The types at each level of nested lists, tuples and dicts. Raises KeyError for what is of another type."""
    told, level = [], list(block)
    while level:
        codes = bytes(map(_FLAT.__getitem__, map(type, level)))
        told.append(codes)
        if max(codes) < 6:
            return told
        nests = [(one, code) for one, code in zip(level, codes, strict=True) if code >= 6]
        level = list(itertools.chain.from_iterable((*one, *one.values()) if code == 6 else one for one, code in nests))
        if len(told) > _MAX_DEPTH:
            raise RecursionError
    return told


def _says_itself(kind: type) -> bool:
    """Whether it has its own way to be pickled: what it holds in C (a deque, an image) is there, and caches are not."""
    names = ("__reduce_ex__", "__reduce__", "__getstate__")
    return any(getattr(kind, name, None) is not getattr(object, name, None) for name in names)


def _is_changed_by_looking(value: Any, kind: type) -> bool:
    """Whether pickling runs code of the program's own, or loads a picture that waits to be read."""
    own = (getattr(kind, name, None) for name in ("__reduce_ex__", "__reduce__", "__getstate__"))
    runs = any(type(each) is types.FunctionType and not is_installed(each.__module__) for each in own)
    waits = kind.__module__.startswith("PIL.") and bool(getattr(value, "__dict__", {}).get("tile"))
    return runs or waits


def _slots(kind: type) -> list[str]:
    found = [(one, vars(one).get("__slots__", ())) for one in kind.__mro__]
    every = [(one, name) for one, slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return [mangled(one, name) for one, name in every if name not in _SKIPPED]
