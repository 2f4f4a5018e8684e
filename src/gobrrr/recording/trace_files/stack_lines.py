"""The Python lines of a trace as a line log: from the profiler's function events, or the stacks that ops carry.

Function events name a function's first line, the stacks of 2021 the executing one. Files of libraries are left out, as
in a live run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model.trace import CPU_OP, PYTHON_FUNCTION, Ops, Trace
from gobrrr.recording.run_folder.run import LineLog
from gobrrr.words import CALL, MODULE, MODULE_END, RETURN

FRAME = re.compile(r"^(.*?\.py)\((\d+)\): (.+)$")
MODULE_FRAME = "nn.Module: "
WAITS = re.compile(r"^<built-in (?:function|method) (sleep|acquire|select|poll|recv|recv_into|wait|waitpid)\b")
"""C functions of Python that wait, as the profiler names them; with a library's they are what a line spends."""
BUILT_IN = "built-in "
MAX_DEPTH = 64  # open user frames and modules kept; proposed: bounds memory; programs nested deeper settle it
MAX_MODULES, MODULE_CHARS = 10_000, 100
"""Modules of a file, and characters of one's name: a program has some thousand, of some twenty."""
LIBRARIES = frozenset(
    "torch torchvision torchaudio torchtext torchrec torchtitan functorch triton transformers accelerate datasets "
    "diffusers timm lightning pytorch_lightning deepspeed apex megatron xformers flash_attn peft trl numpy scipy PIL "
    "pandas sklearn tqdm tensorboard wandb hydra omegaconf ray vllm IPython ipykernel traitlets tornado ipython "
    "nest_asyncio jupyter gobrrr bitsandbytes huggingface_hub tokenizers evaluate ultralytics fairseq fairscale "
    "joblib cv2 jax".split()
)
_PACKAGES = re.compile(r"^.*(?:(?:site|dist)-packages|/lib/python3(?:\.\d+)?)/")
_INSTALLED = re.compile(r"(site|dist)-packages/|/lib/python3|/Python3\d+/Lib/|^<|/torch/")
_ROOTED = re.compile(r"/|[A-Za-z]:/")


def is_user(file: str) -> bool:
    """Say whether a file, as the profiler names it (relative to sys.path), is most likely the user's own."""
    file = file.replace("\\", "/")  # of Windows
    if _INSTALLED.search(file):
        return False
    first = file.split("/", 1)[0].removesuffix(".py")
    return first not in LIBRARIES and (first not in sys.stdlib_module_names or _ROOTED.match(file) is not None)


class _Writer:
    """The columns of a line log."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], int] = {}
        self._modules: dict[str, int] = {}
        self._paths: list[str] = []
        self._types: list[str] = []
        self.t: list[int] = []
        self.op: list[int] = []
        self.number: list[int] = []
        self.line: list[int] = []

    def add(self, time: int, op: int, number: int = -1, line: int = 0) -> None:
        self.t.append(time)
        self.op.append(op)
        self.number.append(number)
        self.line.append(line)

    def code(self, file: str, function: str) -> int:
        return self._codes.setdefault((file, function), len(self._codes))

    def module(self, name: str, outer: int) -> int:
        """The number of a module by its path: Net_0.Linear_3. Files name a module by its class and a number; which one
        it is part of is told by what is open around it."""
        name = name[:MODULE_CHARS]
        path = f"{self._paths[outer]}.{name}" if outer >= 0 else name
        if path not in self._modules:
            if len(self._modules) >= MAX_MODULES:
                return outer
            self._modules[path] = len(self._modules)
            self._paths.append(path)
            self._types.append(name.rpartition("_")[0])
        return self._modules[path]

    def log(self) -> LineLog | None:
        codes = tuple((file, function, 0) for file, function in self._codes)
        columns = (self.t, self.op, self.number, self.line)
        return LineLog(codes, tuple(self._modules), *columns, tuple(self._types)) if self.t else None


def line_log(trace: Trace, thread: int) -> LineLog | None:
    """None where the trace has neither."""
    mine = trace.ops.thread == thread
    functions = trace.ops.take(mine & (trace.ops.kind == PYTHON_FUNCTION))
    writer = _Writer()
    if len(functions):
        _by_functions(trace, functions.name, functions.start, functions.start + functions.dur, writer)
    elif len(trace.stacks):
        _by_stacks(trace, thread, writer)
    return writer.log()


def _by_functions(trace: Trace, names: np.ndarray, starts: np.ndarray, ends: np.ndarray, writer: _Writer) -> None:
    """Enter and leave of every user function and module, in order of time."""
    known = {number: _frame(trace.names[number], writer) for number in np.unique(names).tolist()}
    paths: dict[tuple[int, int], int] = {}
    open_: list[tuple[int, int]] = []
    modules = [-1]
    for number, start, end in zip(names.tolist(), starts.tolist(), ends.tolist(), strict=True):
        frame = known[number]
        if frame is None:
            continue
        while open_ and open_[-1][0] <= start:
            if open_[-1][1] == MODULE_END:
                modules.pop()
            writer.add(*open_.pop())
        if len(open_) < MAX_DEPTH:
            op, which, line = frame
            if op == MODULE:
                key = (modules[-1], number)
                if key not in paths:
                    paths[key] = writer.module(trace.names[number].removeprefix(MODULE_FRAME), modules[-1])
                which = paths[key]
                modules.append(which)
            writer.add(start, op, which, line)
            open_.append((end, RETURN if op == CALL else MODULE_END))
    while open_:
        writer.add(*open_.pop())


def _frame(name: str, writer: _Writer) -> tuple[int, int, int] | None:
    """Return (op, code or -1, line) of an event's name: a user's function, a module, or None for neither."""
    if name.startswith(MODULE_FRAME):
        return MODULE, -1, 0
    found = FRAME.match(name)
    if found is None or not is_user(found[1]):
        return None
    return CALL, writer.code(found[1], found[3]), int(found[2][:9])


def library_frames(trace: Trace, threads: Sequence[int]) -> tuple[tuple[str, ...], Ops, npt.NDArray[np.int64]]:
    """(dotted names, the calls on these threads of library functions and of built-in ones that wait, the name of
    each call)."""
    rows = (trace.ops.kind == PYTHON_FUNCTION) & np.isin(trace.ops.thread, threads)
    dotted: dict[str, int] = {}
    number = np.full(len(trace.names), -1, np.int64)
    for name in np.unique(trace.ops.name[rows]).tolist():
        found = FRAME.match(trace.names[name])
        if found is not None and not is_user(found[1]) and not found[1].startswith("<"):
            number[name] = dotted.setdefault(f"{_module(found[1])}.{found[3]}", len(dotted))
        elif waits := WAITS.match(trace.names[name]):
            number[name] = dotted.setdefault(BUILT_IN + waits[1], len(dotted))
    calls = trace.ops.take(rows & (number[trace.ops.name] >= 0) if len(number) else rows)
    return tuple(dotted), calls, number[calls.name]


def _module(file: str) -> str:
    """'.../site-packages/package/part.py' -> 'package.part'."""
    return (
        _PACKAGES.sub("", file.replace("\\", "/"))
        .removesuffix(".py")
        .removesuffix("/__init__")
        .strip("/")
        .replace("/", ".")
    )


def _by_stacks(trace: Trace, thread: int, writer: _Writer) -> None:
    """The stack of every outermost op, until the next one's."""
    rows = trace.ops.take((trace.ops.thread == thread) & (trace.ops.kind == CPU_OP) & (trace.ops.stack >= 0))
    known: dict[int, tuple[tuple[int, int], ...]] = {}
    open_: tuple[tuple[int, int], ...] = ()
    last = -1
    for number, start in zip(rows.stack.tolist(), rows.start.tolist(), strict=True):
        if number == last:
            continue
        last = number
        if number not in known:
            known[number] = tuple(_frames(trace.stacks[number], writer))
        wanted = known[number]
        same = next(
            (i for i, (a, b) in enumerate(zip(open_, wanted, strict=False)) if a != b), min(len(open_), len(wanted))
        )
        for _ in open_[same:]:
            writer.add(start, RETURN)
        for code, line in wanted[same:]:
            writer.add(start, CALL, code, line)
        open_ = wanted


def _frames(stack: str, writer: _Writer) -> Iterator[tuple[int, int]]:
    """(code, line) of the user's frames, outermost first."""
    for text in reversed(re.split(r"[;\n]", stack)):
        found = FRAME.match(text.strip())
        if found is not None and is_user(found[1]):
            yield writer.code(found[1], found[3]), int(found[2][:9])
