"""What a fingerprint sees of values and modules: each pair here was once taken for the same."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import importlib
import io
import random
import sys
import tracemalloc
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gobrrr.data.sample_cache import raw_bytes
from gobrrr.data.sample_cache.fingerprints import digest
from gobrrr.errors import GobrrrError


class Holder:
    def __init__(self, value: Any, inner: Any = None) -> None:
        self.value, self.inner = value, inner


@dataclasses.dataclass
class Resize:
    size: int


@dataclasses.dataclass
class Crop:
    size: int


class Color(enum.Enum):
    RED = "x"


class Private:
    __slots__ = ("__scale",)

    def __init__(self, scale: int) -> None:
        self.__scale = scale


class Deque(collections.deque):  # type: ignore[type-arg]
    pass


class Default(collections.defaultdict):  # type: ignore[type-arg]
    pass


class Date(datetime.date):
    pass


class Bytes(bytearray):
    pass


class Boxes(torch.Tensor):
    pass


class Image:
    """As PIL has it: its pixels are in C, and told by what pickling writes."""

    def __init__(self, pixels: bytes) -> None:
        self.core = memoryview(bytearray(3))
        self.__pixels = (byte for byte in pixels)
        self.told = pixels

    def __getstate__(self) -> Any:
        return [self.told]


class Formatted:
    def __init__(self, function: Any) -> None:
        self._fingerprint = "of the rows"
        self._format_kwargs = {"transform": function}


def boxes(form: str) -> Any:
    value = torch.ones(2).as_subclass(Boxes)
    value.form = form
    return value


def with_attribute(k: int) -> Any:
    def function(x: int) -> int:
        return x

    function.k = k  # type: ignore[attr-defined]
    return function


def quantised(scale: float) -> Any:
    return torch.quantize_per_tensor(torch.tensor([1.0, 2.0]) * scale, scale, 0, torch.quint8)


def nested(depth: int, value: int) -> Holder:
    held: Any = value
    for _ in range(depth):
        held = Holder(held)
    return Holder(held)


def met_deep_first(value: int) -> Holder:
    leaf = Holder(Holder(Holder(value)))
    held = leaf
    for _ in range(18):
        held = Holder(held)
    return Holder(held, leaf)


def arrays(changed: int) -> dict[int, Any]:
    return {index: np.array([index + changed]) for index in range(60_000)}


def named(name: str) -> Any:
    return np.array([(1, 2)], dtype=[(name, "i4"), ("c", "i4")])


def looks_back(value: int) -> Holder:
    owner = Holder(value)
    owner.inner = {Holder(1, owner)}
    return owner


PAIRS = [
    ([(1, 2)], [[1, 2]]),
    ([[Color.RED]], [["x"]]),
    ([[{1}]], [[[1]]]),
    ([[datetime.date(2020, 1, 1)]], [["2020-01-01"]]),
    ([[bytearray(b"a")]], [[b"a"]]),
    ([[True]], [[1]]),
    ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
    ([{"op": Resize(3)}], [{"op": Crop(3)}]),
    (arrays(0), arrays(1)),
    (torch.eye(3).to_sparse(), (2 * torch.eye(3)).to_sparse()),
    (quantised(0.1), quantised(0.2)),
    (torch.nested.nested_tensor([torch.ones(2)]), torch.nested.nested_tensor([torch.zeros(2)])),
    (torch.empty(3, device="meta"), torch.empty(4, device="meta")),
    (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 3j]).conj()),
    (torch.arange(4.0).reshape(1, 4)[:, 1], torch.arange(4.0).reshape(1, 4)[:, 2]),
    (np.arange(4.0).reshape(1, 4)[:, 1], np.arange(4.0).reshape(1, 4)[:, 2]),
    (np.array([[0, 1], [2, 3]]), np.asfortranarray([[0, 2], [1, 3]])),
    (boxes("xyxy"), boxes("cxcywh")),
    (torch.ones(2), torch.ones(2).as_subclass(Boxes)),
    (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),  # type: ignore[no-untyped-call]
    (named("a"), named("b")),
    (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    (memoryview(b"a"), memoryview(b"b")),
    ({"a": 1}.items(), {"a": 2}.items()),
    (io.BytesIO(b"a"), io.BytesIO(b"b")),
    (with_attribute(1), with_attribute(2)),
    (functools.cache(lambda x: x + 1), functools.cache(lambda x: x + 2)),
    (Private(1), Private(2)),
    (Deque([1]), Deque([2])),
    (Default(list), Default(int)),
    (Date(2020, 1, 1), Date(2021, 1, 1)),
    (Bytes(b"a"), Bytes(b"b")),
    (Image(b"a"), Image(b"b")),
    (Formatted(lambda x: x + 1), Formatted(lambda x: x + 2)),
    (nested(60, 1), nested(60, 2)),
    (met_deep_first(1), met_deep_first(2)),
    (looks_back(1), looks_back(2)),
    ([10**5000], [10**5000 + 1]),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=map(str, range(len(PAIRS))))
def test_they_are_two(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_bsc"])
def test_compressed_sparse_ones_are_two(layout: str) -> None:
    """Made here: where such tensors are alive, the dataflow window stays closed in all other tests."""
    blocks = ((2, 2),) if layout == "to_sparse_bsc" else ()
    test_they_are_two(*(getattr(scale * torch.eye(4), layout)(*blocks) for scale in (1, 2)))


def test_it_is_the_same_once_a_dispatching_function_was_called() -> None:
    @functools.singledispatch
    def of(value: Any) -> Any:
        return value

    before = digest(of)
    of(3)
    assert digest(of) == before


def test_what_has_no_bytes_is_refused_in_a_line() -> None:
    class Strange(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no such thing\nat all")

    with pytest.raises(GobrrrError, match=r"has no fingerprint: no such thing .name its version yourself: key="):
        digest(torch.ones(2).as_subclass(Strange))


def test_a_mapped_file_in_columns_is_not_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_bytes, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "columns.npy"
    made = np.lib.format.open_memmap(path, "w+", np.float32, (10_000, 10_000), fortran_order=True)  # 400 MB, sparse
    del made
    value = np.load(path, mmap_mode="r")
    tracemalloc.start()
    try:
        first = digest(value)
        digest(value[::2, ::2])
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    changed = np.load(path, mmap_mode="r+")
    changed[:, -1] = 1
    assert digest(changed) != first


PACKAGE = {
    "__init__": "",
    "helpers": "SIZE = 32\nCOUNT = 0\ndef scale(x):\n    return x * 2\n",
    "late": "def shift(x):\n    return x + 1\n",
    "program": """
import {name}.helpers
from . import helpers
from {name} import helpers as h

def attribute(x):
    return helpers.scale(x)

def dotted(x):
    return {name}.helpers.scale(x)

def constant(x):
    return [x[: h.SIZE] for _ in range(3)]

def inside(x):
    from .late import shift
    return shift(x)

def inside_whole(x):
    import {name}.late
    return {name}.late.shift(x)

def inside_closure():
    import {name}.helpers as its
    return lambda x: its.scale(x)

closure = inside_closure()

class Holds:
    def __init__(self):
        self.helpers = helpers
    def __getitem__(self, index):
        return self.helpers.scale(index)

holds = Holds()
""",
}


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("attribute", "helpers", "x * 2", "x * 3"),
        ("dotted", "helpers", "x * 2", "x * 3"),
        ("constant", "helpers", "SIZE = 32", "SIZE = 64"),
        ("inside", "late", "x + 1", "x + 2"),
        ("inside_whole", "late", "x + 1", "x + 2"),
        ("closure", "helpers", "x * 2", "x * 3"),
        ("holds", "helpers", "x * 2", "x * 3"),
        ("constant", "helpers", "x * 2", None),  # which it does not use
        ("attribute", "helpers", "COUNT = 0", None),
    ],
)
def test_a_module_of_the_program_counts_as_far_as_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str, old: str, new: str | None
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    told = []
    for number in range(2):
        package = f"cachehelp{number}"
        (tmp_path / package).mkdir()
        for part, text in PACKAGE.items():
            if number and part == file:
                assert old in text
                text = text.replace(old, new or old + " + 7")
            # one name in both: the names of modules are in the code
            (tmp_path / package / f"{part}.py").write_text(text.replace("{name}", "cachehelp"))
        (tmp_path / "cachehelp").unlink(missing_ok=True)
        (tmp_path / "cachehelp").symlink_to(package)
        for loaded in [one for one in sys.modules if one.startswith("cachehelp")]:
            monkeypatch.delitem(sys.modules, loaded)
        importlib.invalidate_caches()
        value = getattr(importlib.import_module("cachehelp.program"), name)
        told.append(digest(value))
        assert digest(value) == told[-1]
    assert (told[0] == told[1]) == (new is None)


def test_strictly_what_c_keeps_to_itself_is_refused_and_descriptors_are_told() -> None:
    """A generator's state would be missed; a slot's descriptor has none."""

    class Slotted:
        __slots__ = ("value",)

    held = Slotted()
    held.value = 3
    assert digest(held, strict=True) == digest(held)
    for thing in (random.Random(0), iter([1]).__class__.__iter__, lambda: None):
        digest(thing)
    with pytest.raises(GobrrrError, match=r"cannot be looked at: a random\.Random"):
        digest([held, {random.Random(0): 1}], strict=True)
