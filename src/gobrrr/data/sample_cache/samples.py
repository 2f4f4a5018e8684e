"""One sample as bytes, and back: nested dicts, lists and tuples of tensors, arrays, numbers, strings, bytes, None.

A payload is the size of its tree (4 bytes), the tree as msgpack, and the raw bytes of its arrays, each at a multiple of
`ALIGN`. What msgpack has no word for is an extension: tuples, arrays, and numbers beyond 64 bits. Nothing in a payload
is executed or looked up by name but the dtypes listed here.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec.msgpack import Ext

from gobrrr.errors import GobrrrError

ALIGN = 16
"""Bytes: the largest element is a complex128."""
MAX_DEPTH = 64
"""Levels of nesting; proposed: deeper than samples are, no danger to the stack; a sample refused would settle it."""
MAX_BYTES = 1 << 30
"""Bytes of one sample: the most that a damaged or hostile file may make a reader allocate."""
_SIZE = struct.Struct("<I")
_TUPLE, _TENSOR, _ARRAY, _SCALAR, _COMPLEX, _LARGE, _TEXT = range(1, 8)
_LEAVES = frozenset({int, float, bool, type(None), bytes})
_KEYS = _LEAVES | {str}  # types of the keys of a dict that are kept
# Bool, integers, floats, complex numbers, bytes, text, times: no objects and no records.
_NUMPY = re.compile(r"[<>|](?:[biufcSU][1-9]\d{0,8}|[Mm]8(?:\[\d{0,4}[a-zA-Z]{1,2}\])?)")
_TORCH = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    )
    if hasattr(torch, name)
}
_EMPTY = {"<U0": np.str_(""), ">U0": np.str_(""), "|S0": np.bytes_(b"")}
_NAMES = {dtype: name for name, dtype in _TORCH.items()}
_encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


class _Meta(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Layout of a tensor or array: where its bytes begin and, where they are not in C order, which axis comes first."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    order: tuple[int, ...] | None = None


_WRONG = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, SystemError, struct.error,
          msgspec.MsgspecError)  # fmt: skip
_meta = msgspec.msgpack.Decoder(_Meta)


class Damaged(ValueError):
    """A payload that `encode` has not made."""


def encode(sample: Any) -> bytearray:
    """The payload. Raises GobrrrError that names the place and the type of what is none of the above."""
    blobs: list[bytes] = []
    try:
        tree = _encode(_Tree(blobs).of(sample, ()))
    except RecursionError:
        raise GobrrrError(f"a sample is nested deeper than {MAX_DEPTH} levels", "make it flatter") from None
    start = _SIZE.size + len(tree)
    parts = [_SIZE.pack(len(tree)), tree, bytes(-start % ALIGN)]
    for blob in blobs:
        parts += [blob, bytes(-len(blob) % ALIGN)]
    payload = bytearray().join(parts)  # which can be decoded as it is
    if len(payload) > MAX_BYTES:
        what = f"a sample has {len(payload):,} bytes, too many for the cache"
        raise GobrrrError(what, f"samples of up to {MAX_BYTES:,} bytes are cached")
    return payload


class _Tree:
    """A sample as msgpack can say it; the bytes of its arrays go to `blobs`, and offsets count from the first."""

    def __init__(self, blobs: list[bytes]) -> None:
        self.blobs = blobs
        self.end = 0

    def of(self, value: Any, at: tuple[Any, ...]) -> Any:
        kind = type(value)
        if kind is str:
            return _text(value)
        if kind is int and not -(1 << 63) <= value < 1 << 64:
            return Ext(_LARGE, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        if kind in _LEAVES:
            return value
        if len(at) > MAX_DEPTH:
            raise RecursionError
        if kind is list or kind is tuple:
            items = self._items(value, at)
            return items if kind is list else Ext(_TUPLE, _encode(items))
        if kind is dict:
            return {self._key(key, at): self.of(item, (*at, key)) for key, item in value.items()}
        if kind is complex:
            return Ext(_COMPLEX, struct.pack("<dd", value.real, value.imag))
        if kind is torch.Tensor:
            return self._tensor(value, at)
        if kind is np.ndarray and _NUMPY.fullmatch(value.dtype.str):
            order = _order(value.strides, value.shape)
            straight = value.transpose(order) if order else value
            return self._array(_ARRAY, value.dtype.str, straight.shape, straight.tobytes(), order)
        if isinstance(value, np.generic) and (_NUMPY.fullmatch(value.dtype.str) or value.dtype.str in _EMPTY):
            name = value.dtype.str
            return Ext(_SCALAR, _encode((name, b"" if name in _EMPTY else value.tobytes())))
        raise _refused(value, at)

    def _items(self, value: Sequence[Any], at: tuple[Any, ...]) -> list[Any]:
        """Long lists of numbers, as tokenizers give them, at the speed of C."""
        kinds = set(map(type, value))
        if kinds <= _LEAVES and (int not in kinds or _fits([one for one in value if type(one) is int])):
            return list(value)
        return [self.of(item, (*at, number)) for number, item in enumerate(value)]

    def _key(self, key: Any, at: tuple[Any, ...]) -> Any:
        if type(key) not in _KEYS or (type(key) is int and not _fits([key])) or type(_text(key)) is Ext:
            raise GobrrrError(
                f"{_place(at)} has a key that is not kept: {_named(key)}", "use strings or integers of 64 bits"
            )
        return key

    def _tensor(self, value: torch.Tensor, at: tuple[Any, ...]) -> Ext:
        name = _NAMES.get(value.dtype)
        sparse = value.layout is not torch.strided or name is None or value.is_nested
        reasons = (
            f"a tensor on {value.device}" if value.device.type != "cpu" else "",
            f"a {value.layout} tensor of {value.dtype}" if sparse else "",
            "a tensor that requires grad" if value.requires_grad else "",
        )
        if name is None or any(reasons):
            why = f"{_place(at)} is {next(filter(None, reasons))}"
            raise GobrrrError(why, "dense tensors on the CPU, without grad, are kept")
        order = _order(value.stride(), value.shape)
        straight = (value.permute(order) if order else value).resolve_conj().resolve_neg().contiguous()
        blob = _bytes_of(straight) if straight.numel() else b""
        return self._array(_TENSOR, name, straight.shape, blob, order)

    def _array(self, code: int, dtype: str, shape: Sequence[int], blob: bytes, order: tuple[int, ...] | None) -> Ext:
        start = self.end
        self.blobs.append(blob)
        self.end += len(blob) + -len(blob) % ALIGN
        return Ext(code, _encode((dtype, tuple(shape), start, order)))


def _bytes_of(value: torch.Tensor) -> bytes:
    # as_strided: one element counts as contiguous with any stride, and only a stride of 1 can be viewed as bytes
    return np.from_dlpack(value.as_strided((value.numel(),), (1,)).view(torch.uint8)).tobytes()


def _fits(numbers: Sequence[int]) -> bool:
    return not numbers or (min(numbers) >= -(1 << 63) and max(numbers) < 1 << 64)


def _text(value: Any) -> Any:
    """A string as it is; one with lone surrogates, as names of files have them, which UTF-8 does not know, marked."""
    if type(value) is not str or value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _order(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest, None for C order: what is channels last stays so."""
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    order = sorted(axes, key=lambda axis: -abs(strides[axis]))
    if order == axes or 0 in shape or 0 in strides:
        return None
    return (*(axis for axis, size in enumerate(shape) if size == 1), *order)


def _refused(value: Any, at: tuple[Any, ...]) -> GobrrrError:
    return GobrrrError(
        f"{_place(at)} is {_named(value)}, which is not kept",
        "samples are nested dicts, lists and tuples of tensors, NumPy arrays, numbers, strings, bytes and None; "
        "turn it into one of these in `function`",
    )


def _named(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name} of {value.dtype}" if isinstance(value, np.ndarray | np.generic) else name


def _place(at: tuple[Any, ...]) -> str:
    return "the sample" + "".join(f"[{key!r}]" for key in at)


def decode(payload: Any, frozen: bool = False) -> Any:
    """The sample of a writable buffer, whose memory its tensors and arrays share. Raises Damaged.

    `frozen`: NumPy arrays are read-only; torch knows no such tensors.
    """
    try:
        view = memoryview(payload)
        (size,) = _SIZE.unpack_from(view)
        first = _SIZE.size + size
        return _Reader(payload, view, first + -first % ALIGN, frozen).of(view[_SIZE.size : first])
    except _WRONG as error:
        raise Damaged(str(error)) from None


class _Reader:
    """Extensions of one payload as what they stand for; `first` is where its arrays begin."""

    def __init__(self, payload: Any, view: memoryview, first: int, frozen: bool) -> None:
        self.payload = payload
        self.frozen = frozen
        self.view = view
        self.first = first

    def of(self, data: Any) -> Any:
        # no decoder is kept: with this method as its hook it would be a cycle that holds the payload
        return msgspec.msgpack.decode(data, ext_hook=self._extension)

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == _TUPLE:
            return tuple(self.of(data))
        if code == _TENSOR:
            return self._tensor(_meta.decode(data))
        if code == _ARRAY:
            return self._array(_meta.decode(data))
        if code == _SCALAR:
            name, value = self.of(data)
            return np.frombuffer(value, _numpy_dtype(name))[0] if value else _EMPTY[name]
        if code == _COMPLEX:
            return complex(*struct.unpack("<dd", data))
        if code == _LARGE:
            return int.from_bytes(data, "little", signed=True)
        if code == _TEXT:
            return bytes(data).decode("utf-8", "surrogatepass")
        raise Damaged(f"extension {code}")

    def _tensor(self, meta: _Meta) -> torch.Tensor:
        dtype = _TORCH.get(meta.dtype)
        if dtype is None:
            raise Damaged("dtype")
        start, count = self._range(meta, dtype.itemsize)
        flat = torch.empty(0, dtype=dtype, device="cpu")
        if count:
            flat = torch.frombuffer(self.payload, dtype=dtype, count=count, offset=start)
        value = flat if len(meta.shape) == 1 else flat.reshape(meta.shape)
        return value.permute(_inverse(meta.order)) if meta.order else value

    def _array(self, meta: _Meta) -> Any:
        dtype = _numpy_dtype(meta.dtype)
        start, count = self._range(meta, dtype.itemsize)
        flat = np.frombuffer(self.payload, dtype, count, start) if count else np.empty(0, dtype)
        flat.flags.writeable = not self.frozen
        value = flat if len(meta.shape) == 1 else flat.reshape(meta.shape)
        return value.transpose(_inverse(meta.order)) if meta.order else value

    def _range(self, meta: _Meta, itemsize: int) -> tuple[int, int]:
        """Where the bytes begin and how many elements they are, all of it within the payload."""
        count = math.prod(meta.shape)
        start = self.first + meta.start
        if min(meta.shape, default=0) < 0 or meta.start < 0 or start + count * itemsize > len(self.view):
            raise Damaged("an array beyond the end")
        return start, count


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if not _NUMPY.fullmatch(name):
        raise Damaged("dtype")
    return np.dtype(name)


def _inverse(order: Sequence[int]) -> list[int]:
    if sorted(order) != list(range(len(order))):
        raise Damaged("order of axes")
    return sorted(range(len(order)), key=order.__getitem__)
