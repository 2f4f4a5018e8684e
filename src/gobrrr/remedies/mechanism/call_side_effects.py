"""Does a call change anything beside its output, in what it can be seen to hold?"""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import random
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.nn import Module

from gobrrr.capture.source.user_code import UserFiles
from gobrrr.remedies.loader.copied_state import LONG, CopiedState
from gobrrr.remedies.mechanism.changed import counts, mark

PLAIN = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
CALLED = (FunctionType, BuiltinFunctionType, MethodType, functools.partial, type, ModuleType)
_KINDS = ("_parameters", "_buffers", "_modules")
_TORCHS_OWN = frozenset(vars(Module())) - {"training"}
"""Attributes of every module: tensors and parts are asked for one by one, hooks are not looked at."""
_SIMPLE = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Classes of tensors that have an address and can be compared."""
BYTES = 1 << 20
"""Most bytes of an array that is looked at before and after each call: some 0.1 ms."""
_FILES = UserFiles()


def reached_by(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the things that a call may read or run: its arguments, what its function holds, is a method of, closes
    over or names, and the same for the forwards of modules among these."""
    todo: list[Any] = [function, *args, *kwargs.values()]
    met: dict[int, Any] = {}
    while todo:
        each = todo.pop()
        if id(each) in met or isinstance(each, PLAIN):
            continue
        met[id(each)] = each  # held, so that no other has its id
        if isinstance(each, Module):
            todo += [part for part in each._modules.values() if part is not None]
            todo.append(type(each).forward)
        elif isinstance(each, CONTAINERS):
            todo += () if len(each) > LONG else each.values() if isinstance(each, dict) else each
        elif isinstance(each, functools.partial):
            todo += [each.func, *each.args, *each.keywords.values()]
        elif inspect.ismethod(each):
            todo += [each.__func__, each.__self__]
            todo += [] if isinstance(each.__self__, Module) else getattr(each.__self__, "__dict__", {}).values()
        elif inspect.isfunction(each):
            todo += [value for _, value in _named_by(each)]
    return list(met.values())


def _named_by(function: FunctionType) -> Iterator[tuple[Hashable, Any]]:
    """Yield what it closes over, and the globals that it names; code of packages names no modules that train."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing is in it yet
            yield id(cell), cell.cell_contents
    code, known = function.__code__, function.__globals__
    if code.co_filename.startswith("<") or _FILES.is_user(code.co_filename):
        yield from (((id(known), name), known[name]) for name in code.co_names if name in known)


def can_be_known(thing: Any) -> bool:
    """Whether it cannot change within, where nobody looks."""
    if isinstance(thing, CONTAINERS):
        return len(thing) <= LONG
    if isinstance(thing, (Module, *CALLED)) or type(thing).__module__.partition(".")[0] == "torch":
        return True
    own = getattr(thing, "__dict__", None)
    return own is not None and all(isinstance(value, PLAIN) for value in own.values())


class _Held(NamedTuple):
    thing: Any
    """Kept, so that no other has its id."""
    mark: Any
    copy: Any = None

    def is_still(self, later: _Held) -> bool:
        if self.mark != later.mark:
            return False
        return self.copy is None or torch.equal(self.copy, later.copy)


class Glance:
    """A quick look, before and after each call: tensors by torch's count of writes, plain values by what they are,
    containers by the same of their entries, arrays by their bytes, generators by their state, all else by which it
    is."""

    def __init__(self, things: list[Any]) -> None:
        self._held: list[Any] = []
        self._counts: list[Any] = []
        entries: list[Any] = []
        for thing in things:
            own = vars(thing) if isinstance(thing, Module) else {}
            torchs = [own[name] for name in _TORCHS_OWN if name in own]
            others = [value for _, value in _parts(thing)]
            self._held += torchs + others
            self._counts += [len(value) if isinstance(value, (dict, set)) else 0 for value in torchs]
            self._counts += [_count(value, entries) for value in others]
        self._entries = entries  # held, so that no other has the id of one
        self._drawn, self._torchs = _drawn(), _Torchs()

    def drew(self, later: Glance) -> bool:
        """Whether Python, NumPy or a generator have drawn random numbers until a later look, in whatever thread."""
        return self._drawn != later._drawn or bool(self._streams(later))

    def put_back_drawn(self, later: Glance) -> None:
        """Undo the random draws until a later look, another thread's too, and those from torch's own streams."""
        for each, before in self._streams(later):
            _set_back(each, before)
        python, numpys = self._drawn
        random.setstate(python)
        if numpys is not None:
            import numpy as np

            np.random.set_state(pickle.loads(numpys))
        self._torchs.put_back()

    def _streams(self, later: Glance) -> list[tuple[Any, bytes]]:
        """Generators that have drawn, with their state before."""
        pairs = zip(self._held, self._counts, later._counts, strict=False)
        return [(each, m) for each, m, n in pairs if m != n and _is_stream(each)]

    def moved(self, later: Glance) -> set[int]:
        """The places where a later one found something else, but for streams of random numbers; -1 where there are more
        or fewer."""
        if len(self._held) != len(later._held):
            return {-1}
        pairs = zip(self._held, later._held, self._counts, later._counts, strict=True)
        return {
            at
            for at, (a, b, m, n) in enumerate(pairs)
            if (m != n or not (a is b or (isinstance(a, PLAIN) and type(a) is type(b) and repr(a) == repr(b))))
            and not (a is b and _is_stream(a))
        }


def _count(value: Any, met: list[Any], deep: int = 2) -> Any:
    """Return a value that changes when the contents of the same object do. It holds good as long as the entries that it
    adds to `met` are held."""
    if isinstance(value, PLAIN):
        return 0
    if isinstance(value, torch.Tensor):
        return value._version if counts(value) else 0
    if _is_stream(value):
        return _state(value)
    if _is_array(value):
        if value.nbytes > BYTES or value.dtype.hasobject:  # too many, or addresses: never equal
            return object()
        return value.shape, str(value.dtype), value.tobytes()
    if not isinstance(value, CONTAINERS):
        return 0
    if not deep or len(value) > LONG:
        return len(value)
    entries = (*value.keys(), *value.values()) if isinstance(value, dict) else value
    met += entries
    return tuple(repr(each) if isinstance(each, PLAIN) else (id(each), _count(each, met, deep - 1)) for each in entries)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


class Look:
    """A thorough one, which finds as well what is written through `.data` to tensors that are not trained, random
    numbers that Python or NumPy draw, and what changes within objects that are not known."""

    def __init__(self, things: list[Any]) -> None:
        self._held: dict[Hashable, _Held] = {key: _held(value) for thing in things for key, value in _parts(thing)}
        self._held["random"] = _Held(None, _drawn())
        self._within: list[CopiedState] | None = None  # of what is too much to be looked at
        with contextlib.suppress(Exception):  # TooMuch, or the program's own objects, asked in an unforeseen way
            self._within = [CopiedState([thing for thing in things if not can_be_known(thing)])]

    def is_still(self, later: Look) -> bool:
        """Whether a later one found the same."""
        mine, others = self._held, later._held
        if mine.keys() != others.keys() or self._within is None or later._within is None:
            return False
        within = all(one.is_still(other) for one, other in zip(self._within, later._within, strict=True))
        return within and all(held.is_still(others[key]) for key, held in mine.items())


def _parts(thing: Any) -> Iterator[tuple[Hashable, Any]]:
    if isinstance(thing, Module):
        for kind in _KINDS:
            for name, value in thing.__dict__[kind].items():
                yield (id(thing), kind, name), value
        for name, value in vars(thing).items():
            if name not in _TORCHS_OWN:
                yield (id(thing), name), value
    elif isinstance(thing, FunctionType):
        yield from _named_by(thing)
    elif isinstance(thing, (*CONTAINERS, torch.Tensor)) or _is_stream(thing) or _is_array(thing):
        yield id(thing), thing
    elif not isinstance(thing, CALLED):
        for name, value in getattr(thing, "__dict__", {}).items():
            yield (id(thing), name), value


def _held(value: Any) -> _Held:
    if isinstance(value, PLAIN):
        return _Held(value, repr(value))
    if isinstance(value, torch.Tensor):
        if type(value) not in _SIMPLE or value.layout is not torch.strided or value.is_meta:
            return _Held(value, (id(value), value._version if counts(value) else None))
        return _Held(value, mark(value), None if value.requires_grad else value.detach().clone())
    if _is_stream(value):
        return _Held(value, _state(value))
    entries: list[Any] = []
    return _Held((value, entries), (id(value), _count(value, entries)))


def _is_stream(value: Any) -> bool:
    """A generator of random numbers of torch's, Python's or NumPy's."""
    kind = type(value)
    if kind is torch.Generator or kind is random.Random:
        return True
    return str(kind.__module__).startswith("numpy.random") and hasattr(kind, "standard_normal")


def _state(stream: Any) -> bytes:
    if type(stream) is torch.Generator:
        return bytes(stream.get_state().numpy())
    if type(stream) is random.Random:
        return pickle.dumps(stream.getstate())
    old = not hasattr(stream, "bit_generator")  # a RandomState
    return pickle.dumps(stream.get_state(legacy=False) if old else stream.bit_generator.state)


def _set_back(stream: Any, state: bytes) -> None:
    if type(stream) is torch.Generator:
        stream.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif type(stream) is random.Random:
        stream.setstate(pickle.loads(state))
    elif hasattr(stream, "bit_generator"):
        stream.bit_generator.state = pickle.loads(state)
    else:
        stream.set_state(pickle.loads(state))


class _Torchs:
    """Positions of torch's own streams: dropout draws from them, and checkpointing lets it draw the same again."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.get_rng_state_all() if in_use else []

    def put_back(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)


def _drawn() -> tuple[Any, Any]:
    """Return the positions of Python's and NumPy's streams, in a form that can be compared."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else pickle.dumps(numpy.random.get_state(legacy=False))
