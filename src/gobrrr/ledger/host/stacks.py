"""Sampled stacks as time by user line, with the library functions below each line."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import LineGroup
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import Samples
from gobrrr.spans import Ints, elapsed, lengths

_PACKAGES = re.compile(r"(?:site-packages|dist-packages|python3\.\d+)/(?!site-packages|dist-packages)(.+)\.py$")
_HOOKS = re.compile(r"/gobrrr/(?:capture|system|inside)/")
MAX_LIBRARIES = 24  # library functions kept; proposed: bounds the file; a report that lacks one would settle it
# Below this share of CPU the thread was waiting (sleep, I/O, a queue), not working.
WAITING = 0.2
LONG = 2.0
"""Multiple of the median step from which a step is not a usual one."""


class Sample(NamedTuple):
    """One sample: the time since the one before it, as far as it lies in the sampled steps."""

    stack: int
    ns: float
    cpu: float
    """-1 where it is not known."""
    held: int = event_kinds.UNKNOWN
    wrote: float = 0.0
    """Bytes until the next sample: a long call is counted when it ends."""
    usual: float = 0.0
    """Part of `ns` in steps of usual length."""


@dataclass
class Sum:
    """Sums of the samples of one place, ns. CPU that is not known counts as worked."""

    ns: float = 0.0
    cpu: float = 0.0
    num_samples: int = 0
    innermost: dict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))
    inclusive: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    held: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    wrote: float = 0.0
    usual: float = 0.0

    def add(self, stack: Stack, sample: Sample) -> None:
        """Take in one sample."""
        ns, cpu = sample.ns, sample.cpu
        self.ns += ns
        self.held[sample.held] += ns
        self.wrote += sample.wrote
        self.usual += sample.usual
        self.num_samples += 1
        self.cpu += cpu if cpu >= 0 else ns
        self.innermost[stack.libraries] += ns
        for name in set(stack.libraries):
            self.inclusive[name] += ns

    @property
    def own_share(self) -> float:
        """Return the share of the time with no library function below the line."""
        return self.innermost.get((), 0.0) / self.ns

    def libraries(self, num: int) -> tuple[tuple[str, float], ...]:
        """Library functions with their inclusive ns per one of `num`, most first."""
        ranked = sorted(self.inclusive.items(), key=lambda item: (-item[1], item[0]))[:MAX_LIBRARIES]
        return tuple((name, ns / max(1, num)) for name, ns in ranked)


@dataclass(frozen=True)
class Stack:
    """One interned stack, read once. `frames`, innermost first: file and function; `where`: the user's among them."""

    where: tuple[Span, ...]
    libraries: tuple[str, ...]
    phase: str
    frames: tuple[tuple[str, str], ...]
    watches: bool = False
    """The innermost frame is of gobrrr's hooks."""
    stage: str = ""
    """As a LineGroup has it."""


def line_groups(samples: Samples, spans: Ints) -> list[LineGroup]:
    """Main-thread wall time per step by innermost user line and phase, most first. `spans` are the sampled steps."""
    stacks = [read_stack(samples, stack) for stack in samples.stacks]
    sums: dict[tuple[tuple[Span, ...], str, str], Sum] = defaultdict(Sum)
    for sample in weighted(samples, spans):
        stack = stacks[sample.stack]
        if stack.watches:
            continue  # our own hooks: the plain step has them not
        sums[(stack.where, stack.phase, stack.stage)].add(stack, sample)
    steps = len(spans), len(_usual(spans))
    groups = [_line_group(*key, total, *steps) for key, total in sums.items()]
    return sorted(groups, key=lambda g: -g.ns)


def _usual(spans: Ints) -> Ints:
    """The steps of usual length, half of them at least."""
    ns = lengths(spans)
    return spans[ns <= LONG * np.median(ns)] if len(spans) else spans


def _line_group(
    where: tuple[Span, ...], phase: str, stage: str, total: Sum, num_steps: int, num_usual: int
) -> LineGroup:
    top = max(total.innermost.items(), key=lambda item: item[1])[0]
    waiting = total.cpu < WAITING * total.ns
    libraries = total.libraries(num_steps)
    cpu_share = min(1.0, total.cpu / total.ns) if total.ns else None
    group = LineGroup(where, total.ns / num_steps, phase, top, libraries, waiting, total.num_samples, stage=stage,
                      cpu_share=cpu_share, own_share=total.own_share,
                      usual_share=total.usual / num_usual / (total.ns / num_steps))  # fmt: skip
    if total.held[event_kinds.UNKNOWN] > 0:
        return group
    held, writing = (total.held[kind] / num_steps for kind in (event_kinds.WAITS, event_kinds.WRITES))
    return replace(group, held=held, writing=writing, written=total.wrote / num_steps)


def weighted(samples: Samples, spans: Ints) -> list[Sample]:
    """The samples with the time in `spans` that each stands for; what follows the last one is that one's too."""
    if not samples.t or not len(spans):
        return []
    times = np.array([spans[0, 0], *samples.t[:-1], max(samples.t[-1], int(spans[-1, 1]))])
    ns, usual = np.diff(elapsed(times, spans)), np.diff(elapsed(times, _usual(spans)))
    whole = np.diff(np.array([spans[0, 0], *samples.t]))
    cpu = np.array(samples.cpu)
    worked = np.concatenate(([-1], np.where((cpu[1:] >= 0) & (cpu[:-1] >= 0), np.diff(cpu), -1)))
    known = (worked >= 0) & (whole > 0)
    worked_share = np.where(known, np.minimum(1.0, worked / np.maximum(whole, 1)), -1.0)
    held = samples.held or [event_kinds.UNKNOWN] * len(samples.t)
    rows = zip(samples.stack, ns.tolist(), worked_share.tolist(), held, _wrote(samples), usual.tolist(), strict=True)
    count = len(samples.stacks)
    return [Sample(n, t, t * s if s >= 0 else -1.0, h, w, u) for n, t, s, h, w, u in rows if t > 0 and 0 <= n < count]


def _wrote(samples: Samples) -> list[float]:
    """Bytes between each sample and the next one; none after the last, and none where that is not known."""
    wrote = np.array(samples.wrote or [-1] * len(samples.t))
    known = (wrote[:-1] >= 0) & (wrote[1:] >= 0)
    return [*np.where(known, np.maximum(np.diff(wrote), 0), 0).astype(float).tolist(), 0.0]


def read_stack(samples: Samples, numbers: tuple[int, ...]) -> Stack:
    """The frames of one stack, sorted into the user's and the libraries' below them."""
    given = [samples.frames[n] for n in numbers if 0 <= n < len(samples.frames)]
    frames = tuple((file.replace("\\", "/"), function) for file, function, _, _ in given)
    first = next((i for i, frame in enumerate(given) if frame[3]), len(given))
    where = tuple(Span(file, line, function) for file, function, line, user in given if user)
    libraries = tuple(qualified(*frame) for frame in frames[:first] if not _HOOKS.search(frame[0]))
    watches = bool(frames[:first]) and _HOOKS.search(frames[0][0]) is not None
    phase = _phase(frames)
    return Stack(where, libraries, phase, frames, watches, stage_of(frames) if phase == "data" else "")


def qualified(file: str, function: str) -> str:
    """A library function as module.function: site-packages/torch/serialization.py, save -> torch.serialization.save."""
    found = _PACKAGES.search(file)
    module = found.group(1).replace("/", ".").removesuffix(".__init__") if found else file.rsplit("/", 1)[-1]
    return f"{module}.{function}"


def _phase(frames: tuple[tuple[str, str], ...]) -> str:
    """By torch's own entry points on the stack. A wait is a wait whatever runs in it; what a backward recomputes is
    backward; what an optimizer's closure runs is no update."""
    if any(file.endswith("torch/utils/data/dataloader.py") for file, _ in frames):
        return "data"
    if any(function == "_engine_run_backward" for _, function in frames):
        return "backward"
    if any(function.endswith("_wrapped_call_impl") for _, function in frames):
        return "forward"
    return "optimizer" if _updates([file for file, _ in frames]) else "other"


def _updates(files: list[str]) -> bool:
    """An optimizer's step runs, and no closure inside it: that would be code outside torch and outside the file that
    the step is written in, which is called right from torch's wrapper. `files`: innermost first."""
    around = [i for i, file in enumerate(files) if file.endswith("torch/optim/optimizer.py")]
    if not around:
        return False
    inner = [file for file in files[: around[-1]] if not file.endswith("torch/optim/optimizer.py")]
    step = inner[-1] if inner else ""
    return all(file == step or "/torch/" in file for file in inner)


# Work of the main thread itself in a wait for the loader, told by torch's own functions on the stack. Drawing indices
# and receiving a batch from a worker are done by the main process whatever the number of workers, so that none of them
# can take it over.

SAMPLING, RECEIVING = "sampling", "receiving"
SENDING = "sending"
"""Work of a worker's threads that hand batches over, beside the one that makes them."""
_LOADER = "torch/utils/data/dataloader.py"
_POLLS = frozenset({"poll", "_poll"})


def stage_of(frames: tuple[tuple[str, str], ...]) -> str:
    """SAMPLING, RECEIVING, or "" for all else, of a stack that is in a loader. `frames`: file and function, the
    innermost first; before Python 3.11 a function's name does not tell its class."""
    first = next((i for i, (file, _) in enumerate(frames) if file.endswith(_LOADER)), len(frames))
    inside = [(file, _own(function)) for file, function in frames[:first]]
    entered = _own(frames[first][1]) if first < len(frames) else ""
    if entered == "_next_index" or (entered in ("__init__", "_reset") and inside and inside[-1][1] == "__iter__"):
        return SAMPLING  # a sampler's __iter__ that is no generator runs where the loader asks for its iterator
    # Below the queue's get, and past waiting for something to be in it. A thread that pins receives for itself.
    gets = inside and inside[-1][0].endswith("multiprocessing/queues.py") and inside[-1][1] == "get"
    polls = any(function in _POLLS and file.endswith("multiprocessing/connection.py") for file, function in inside)
    return RECEIVING if entered == "_try_get_data" and gets and not polls else ""


def _own(function: str) -> str:
    return function.rsplit(".", 1)[-1]
