"""What py-spy saw of a process: its speedscope files, read as hostile data."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gobrrr.errors import TraceError
from gobrrr.recording.run_folder.run import Samples
from gobrrr.recording.trace_files.stack_lines import is_user
from gobrrr.system import files

MAX_BYTES = 64 << 20
"""Ten seconds of a hundred threads are a tenth of it."""
MAX_LINE, MAX_DEPTH = 1 << 24, 256
_THREAD = re.compile(r"Thread (?:0x([0-9a-fA-F]{1,16})|(\d{1,10}))(?: |$)")


class _Frame(msgspec.Struct):
    name: str
    file: str | None = None
    line: int | None = None


class _Profile(msgspec.Struct):
    name: str
    samples: list[list[int]]


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _Document(msgspec.Struct):
    profiles: list[_Profile]
    shared: _Shared


def read(file: Path) -> dict[int, Samples]:
    """Samples of each thread, by the system's number of it. Raises TraceError for what py-spy does not write."""
    try:
        data = files.read(file, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise TraceError(f"{file}: py-spy wrote more than {MAX_BYTES} bytes", "look for fewer --seconds")
        document = msgspec.json.decode(data, type=_Document)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{file}: not what py-spy writes: {error}", "try a newer py-spy") from None
    frames = tuple(_frame(frame) for frame in document.shared.frames)
    found: dict[int, Samples] = {}
    for profile in document.profiles:
        if (thread := _THREAD.search(profile.name)) is not None:
            number = int(thread[1], 16) if thread[1] else int(thread[2])
            found[number] = _samples(frames, profile.samples)
    return found


def _frame(frame: _Frame) -> tuple[str, str, int, bool]:
    file, line = frame.file or "", frame.line or 0
    return file, frame.name, line if 0 < line < MAX_LINE else 0, bool(file) and is_user(file)


def _samples(frames: tuple[tuple[str, str, int, bool], ...], stacks: list[list[int]]) -> Samples:
    """Stacks innermost first, each kept once, as a window's samples are; py-spy writes the outermost first, which is
    the thread's name and has no file."""
    known: dict[tuple[int, ...], int] = {}
    there = ([n for n in stack[: -MAX_DEPTH - 1 : -1] if 0 <= n < len(frames) and frames[n][0]] for stack in stacks)
    column = [known.setdefault(tuple(stack), len(known)) for stack in there]
    return Samples(frames, tuple(known), stack=column)
