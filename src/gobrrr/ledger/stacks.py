"""Sampled stacks as time by user line, with the library functions below each line."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from gobrrr.ledger.model import LineGroup, WorkerGroup
from gobrrr.recording.facts import Span
from gobrrr.recording.run import Samples, Worker

_PACKAGES = re.compile(r"(?:site-packages|dist-packages|python3\.\d+)/(?!site-packages|dist-packages)(.+)\.py$")
MAX_LIBRARIES = 24
# Below this share of CPU the thread was waiting (sleep, I/O, a queue), not working.
WAITING = 0.2


@dataclass
class _Sum:
    """What the samples of one place add up to."""

    ns: float = 0.0
    cpu: float = 0.0
    innermost: dict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))
    inclusive: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True)
class _Stack:
    """One interned stack, read once."""

    where: tuple[Span, ...]
    libraries: tuple[str, ...]
    phase: str
    functions: tuple[str, ...]


def line_groups(samples: Samples, begin: int, end: int, num_steps: int) -> list[LineGroup]:
    """Main-thread wall time per step by innermost user line and phase, most first."""
    stacks = [_read(samples, stack) for stack in samples.stacks]
    sums: dict[tuple[tuple[Span, ...], str], _Sum] = defaultdict(_Sum)
    for number, ns, cpu in _weighted(samples, begin, end):
        stack = stacks[number]
        _add(sums[(stack.where, stack.phase)], stack, ns, cpu)
    groups = [_line_group(where, phase, total, num_steps) for (where, phase), total in sums.items()]
    return sorted(groups, key=lambda g: -g.ns)


def _line_group(where: tuple[Span, ...], phase: str, total: _Sum, num_steps: int) -> LineGroup:
    top = max(total.innermost.items(), key=lambda item: item[1])[0] if total.innermost else ()
    return LineGroup(
        where, total.ns / num_steps, phase, top, _libraries(total, num_steps), total.cpu < WAITING * total.ns
    )


def _libraries(total: _Sum, num: int) -> tuple[tuple[str, float], ...]:
    ranked = sorted(total.inclusive.items(), key=lambda item: (-item[1], item[0]))[:MAX_LIBRARIES]
    return tuple((name, ns / max(1, num)) for name, ns in ranked)


def _add(total: _Sum, stack: _Stack, ns: float, cpu: float) -> None:
    total.ns += ns
    total.cpu += cpu if cpu >= 0 else ns
    total.innermost[stack.libraries] += ns
    for name in set(stack.libraries):
        total.inclusive[name] += ns


def _weighted(samples: Samples, begin: int, end: int) -> list[tuple[int, float, float]]:
    """(stack, ns, CPU ns) of each sample: the time since the one before it."""
    found = []
    last, last_cpu = begin, samples.cpu[0] if samples.cpu else -1
    for t, number, cpu in zip(samples.t, samples.stack, samples.cpu, strict=True):
        if t > end:
            break
        if t > begin and 0 <= number < len(samples.stacks):
            worked = float(cpu - last_cpu) if cpu >= 0 and last_cpu >= 0 else -1.0
            found.append((number, float(t - last), worked))
        last, last_cpu = max(t, begin), cpu
    return found


def _read(samples: Samples, numbers: tuple[int, ...]) -> _Stack:
    frames = [samples.frames[n] for n in numbers if 0 <= n < len(samples.frames)]
    first = next((i for i, frame in enumerate(frames) if frame[3]), len(frames))
    where = tuple(Span(file, line, function) for file, function, line, user in frames[first:] if user)
    libraries = tuple(qualified(file, function) for file, function, _, _ in frames[:first])
    return _Stack(where, libraries, _phase(frames), tuple(function for _, function, _, _ in frames))


def qualified(file: str, function: str) -> str:
    """A library function as module.function: site-packages/torch/serialization.py, save -> torch.serialization.save."""
    found = _PACKAGES.search(file.replace("\\", "/"))
    module = found.group(1).replace("/", ".").removesuffix(".__init__") if found else file.rsplit("/", 1)[-1]
    return f"{module}.{function}"


def _phase(frames: list[tuple[str, str, int, bool]]) -> str:
    """By the outermost of torch's own entry points on the stack."""
    for file, function, _, _ in reversed(frames):
        if file.endswith("torch/utils/data/dataloader.py"):
            return "data"
        if function == "_engine_run_backward":
            return "backward"
        if file.endswith("torch/optim/optimizer.py"):
            return "optimizer"
        if function.endswith("_wrapped_call_impl"):
            return "forward"
    return "other"


def worker_groups(workers: tuple[Worker, ...], loader: int) -> list[WorkerGroup]:
    """Loader workers' time per batch by what they did: getitem, collate, or other (queues: idle)."""
    sums: dict[tuple[str, tuple[Span, ...]], _Sum] = defaultdict(_Sum)
    batches = 0
    for worker in workers:
        batches += worker.batches
        stacks = [_read(worker.samples, stack) for stack in worker.samples.stacks]
        begin = worker.samples.t[0] if worker.samples.t else 0
        for number, ns, cpu in _weighted(worker.samples, begin, 1 << 62):
            stack = stacks[number]
            _add(sums[(_worker_kind(stack), stack.where)], stack, ns, cpu)
    groups = [
        WorkerGroup(
            loader, kind, where, total.ns / max(1, batches), _libraries(total, batches),
            min(1.0, total.cpu / total.ns) if total.ns else None,
        )
        for (kind, where), total in sums.items()
    ]  # fmt: skip
    return sorted(groups, key=lambda g: -g.ns)


def _worker_kind(stack: _Stack) -> str:
    fetch = next((i for i, name in enumerate(stack.functions) if name.endswith("Fetcher.fetch")), -1)
    if fetch < 0:
        return "other"
    inner = [name.rsplit(".", 1)[-1] for name in stack.functions[:fetch]]
    if any(name in ("__getitem__", "__getitems__", "__next__", "__iter__", "<listcomp>") for name in inner[-2:]):
        return "getitem"
    return "collate" if inner else "getitem"
