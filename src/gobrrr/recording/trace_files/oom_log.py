"""What an out-of-memory message says: bytes asked for, free, allocated and reserved; read from a log as hostile text.

The forms are those of torch's allocators since 0.4 (c10/cuda/CUDACachingAllocator.cpp, c10/xpu/XPUCachingAllocator.cpp,
aten/src/ATen/mps/MPSAllocator.mm, c10/core/impl/alloc_cpu.cpp), numpy's _ArrayMemoryError, the loader's, and the
kernel's (mm/oom_kill.c).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.out_of_memory import DeviceState, OutOfMemory, Process
from gobrrr.system import files
from gobrrr.words import phase_of

MOST = 256 << 20
"""Bytes of a log that are read."""
_SIZE = r"(\d+\.?\d*) ?(bytes|[KMGTP]?i?B)"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
"""All of these messages divide by 1,024, also where they write MB (torch's MPS allocator)."""
FAILURES = (
    ("device", r"(?:CUDA|HIP|XPU|MPS backend|Allocation on device) ?(?:error: )?out of memory"
               r"|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|cuda failure 'out of memory'|Tried to allocate "),
    ("cpu", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|unable to mmap \d+ bytes|std::bad_alloc"
            r"|Cannot allocate memory"),
    ("numpy", r"Unable to allocate [\d.]+ \w+ for an array"),
    ("worker", r"DataLoader worker \(pid.{0,80}\) is killed by signal: (?:Killed|Bus error)"
               r"|insufficient shared memory"),
    ("killed", r"[Oo]ut of memory: Kill(?:ed)? process|oom-kill:|exit code 137|exitcode: ?-9|signal: killed"),
    ("python", r"^MemoryError"),
)  # fmt: skip
"""(whose memory, words by which a line of a log is known for one)."""
_ASKED = (rf"[Tt]ried to allocate {_SIZE}", rf"Unable to allocate {_SIZE}", r"unable to mmap (\d+) (bytes)")
_FIGURES = {
    "total": (rf"total capaci?ty of {_SIZE}", rf"; {_SIZE} total capacity", rf"max allowed: {_SIZE}"),
    "free": (rf"of which {_SIZE} is free", rf"already allocated; {_SIZE} free"),
    "in_process": (rf"this process has {_SIZE} memory in use",),
    "allocated": (rf"Of the allocated memory {_SIZE} is allocated", rf"; {_SIZE} already allocated",
                  rf"MPS allocated: {_SIZE}"),
    "unallocated": (rf"and {_SIZE} is reserved by PyTorch but unallocated",),
    "reserved": (rf"; {_SIZE} (?:reserved in total|cached)",),
    "beside": (rf"other allocations: {_SIZE}",),
}  # fmt: skip
_WHOLE = re.compile(r"unallocated|reserved in total|cached\)|pool")
"""Words near the end of a device's message."""
_OTHER = re.compile(rf"[Pp]rocess \d+ has {_SIZE} memory in use")
_FRAME = re.compile(
    r'File "([^"\n]{1,1000})", line (\d{1,7}), in (\S{1,200})|^\s*(\S{1,900}\.py):(\d{1,7}):? in (\S{1,200})'
)
_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python\d|^<|importlib")
_KILLED = re.compile(r"total-vm:(\d+)kB, anon-rss:(\d+)kB, file-rss:(\d+)kB")
LINES_BEFORE = 200
"""Lines before the message in which its traceback is looked for."""


def read_log(path: Path) -> OutOfMemory:
    """Return the last out-of-memory failure in a log file. Raises GobrrrError where it holds none."""
    try:
        with files.opened(path) as file:
            file.seek(max(0, file.seek(0, 2) - MOST))  # the last message counts
            data = file.read(MOST)
    except OSError as error:
        raise GobrrrError(f"cannot read {path}: {error.strerror}", "name a log that holds the error message") from None
    return in_text(data.decode("utf-8", "replace"), str(path))


def in_text(text: str, source: str) -> OutOfMemory:
    """Return the last out-of-memory failure in a log's text. Raises GobrrrError where it holds none."""
    lines = text.splitlines()
    found = next((at for at in range(len(lines) - 1, -1, -1) if kind_of(lines[at])), None)
    if found is None:
        raise GobrrrError(
            f"{source} holds no out-of-memory message", "it is torch's, numpy's, the loader's or the kernel's own line"
        )
    while found and kind_of(lines[found - 1]):
        found -= 1  # a message of several lines begins with the first of them
    told = lines[found].strip()
    for line in lines[found + 1 : found + 5]:  # a terminal may have broken it
        if "Tried to allocate" in told and not _WHOLE.search(told):
            told += f" {line.strip()}"
    frames = _frames(lines[max(0, found - LINES_BEFORE) : found])
    own = [span for span in frames if not _LIBRARY.search(span.file)]
    phase = phase_of((span.file.replace("\\", "/"), span.function) for span in reversed(frames))
    return msgspec.structs.replace(said(told, tuple((own or frames)[:8])), phase=phase)


def kind_of(text: str) -> str:
    """Return whose memory a text says has run out: device, cpu, numpy, worker, killed, python; empty where none."""
    return next((kind for kind, words in FAILURES if re.search(words, text)), "")


def said(text: str, lines: tuple[Span, ...] = ()) -> OutOfMemory:
    """Return what a message tells, with the user's lines of its traceback, the innermost first."""
    kind = kind_of(text)
    asked = next((size for pattern in _ASKED if (size := _size(re.search(pattern, text))) is not None), None)
    device = device_said(text) if kind == "device" else None
    killed = _KILLED.search(text)
    process = (
        Process(resident=1024 * (int(killed[2]) + int(killed[3])), virtual=1024 * int(killed[1]))
        if killed
        else Process()
    )
    return OutOfMemory(
        text=text[:4_000], kind=kind, asked=asked, lines=lines, function=lines[0].function if lines else "",
        device=device, process=process,
    )  # fmt: skip


def device_said(text: str) -> DeviceState:
    """Return the figures of a device in a message; null what it does not tell."""
    found = {
        name: next((size for pattern in patterns if (size := _size(re.search(pattern, text))) is not None), None)
        for name, patterns in _FIGURES.items()
    }
    spare, beside = found.pop("unallocated"), found.pop("beside")
    if beside is not None:
        found["in_process"] = (found["allocated"] or 0) + beside
    if found["reserved"] is None and found["allocated"] is not None and spare is not None:
        found["reserved"] = found["allocated"] + spare
    named = [size for match in _OTHER.finditer(text) if (size := _size(match)) is not None]
    if (
        named
        and found["in_process"] is None
        and len(named) == 1
        and _is_it(named[0], found["reserved"], found["total"])
    ):
        found["in_process"], named = named[0], []  # a container does not see its own number: torch names it so
    number = re.search(r"GPU (\d{1,3})", text)
    state = DeviceState(number=int(number[1]) if number else 0, others=sum(named) or None)
    return msgspec.structs.replace(state, **found)


def _is_it(size: int, reserved: int | None, total: int | None) -> bool:
    """Whether a process with so much memory must be the one that speaks: both do not fit."""
    return reserved is not None and size >= reserved and (total is None or size + reserved > total)


def _size(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    unit = "" if match[2] == "bytes" else match[2][0].replace("B", "")
    return min(round(float(match[1]) * _UNITS[unit]), 1 << 62)


def _frames(lines: list[str]) -> list[Span]:
    """Return the lines of the last traceback, the innermost first."""
    begin = max((at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line), default=0)
    found = (match for line in lines[begin:] for match in _FRAME.finditer(line))
    return [Span(each[1] or each[4], int(each[2] or each[5]), each[3] or each[6]) for each in found][::-1]


def filled(found: OutOfMemory) -> OutOfMemory:
    """Return it with what its own message tells and nobody measured."""
    told = said(found.text)
    kind = told.kind or ("device" if found.type == "OutOfMemoryError" else "python")
    device = found.device or told.device
    if found.device is not None and told.device is not None:
        known = {name: value for name, value in msgspec.structs.asdict(told.device).items()
                 if value is not None and getattr(found.device, name) is None}  # fmt: skip
        device = msgspec.structs.replace(found.device, **known)
    return msgspec.structs.replace(found, kind=kind, asked=told.asked, device=device)
