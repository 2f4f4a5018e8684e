"""In which kind of work is a process, and at which of the user's lines, by its sampled stacks?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gobrrr.ledger.host.stacks import RECEIVING, Stack, qualified, read_stack
from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import Samples
from gobrrr.rules.model.lines import FORMATTING, WAITING, WRITING, Functions, own_name
from gobrrr.rules.outside.look import (
    BACKWARD,
    COLLATE,
    COMPILE,
    DATA,
    DEVICE,
    FETCH,
    HELPER,
    LAUNCHER,
    OPTIMIZER,
    PROGRAM,
    RANKS,
    RECEIVE,
    SAVING,
    TRAINS,
    WAITS,
    WORKER,
    Line,
    Process,
)  # fmt: skip

MAX_LINES = 5
"""Lines of a process that are kept."""
Rows = Sequence[tuple[str, Sequence[Functions]]]
FETCHES = "torch.utils.data._utils.fetch."
COMPILERS = ("torch._dynamo.convert_frame.", "torch._inductor.graph.", "torch._inductor.codecache.",
             "torch._inductor.scheduler.", "torch._inductor.async_compile.", "triton.compiler.")  # fmt: skip
DEVICES = ("torch.cuda.", "torch.xpu.", "torch.mps.", "torch.accelerator.")
KINDS: Rows = (
    (COMPILE, [Functions(COMPILERS)]),
    (FETCH, [Functions((FETCHES,))]),
    (DATA, [Functions(("torch.utils.data.dataloader.",))]),
    (RANKS, [Functions(("torch.distributed.distributed_c10d.", "torch.distributed._functional_collectives."))]),
    (
        DEVICE,
        [Functions(("torch.cuda.", "torch.xpu.", "torch.mps.", "torch.accelerator."), frozenset({"synchronize"}))],
    ),
    (SAVING, [Functions(("torch.serialization.",)), *WRITING, *FORMATTING]),
)
"""Kinds of work by a library's function anywhere on the stack; the first row that holds counts."""
TEXTS = (
    (DEVICE, re.compile(r"\.(?:item|tolist|cpu|numpy)\(|synchronize\(")),
    (SAVING, re.compile(r"\bprint\(|\.write\(|\.flush\(|fsync\(|\.dumps?\(")),
    (WAITS, re.compile(r"\bsleep\(|\.acquire\(|\.wait\(|\.join\(\)")),
)
"""Kinds of work by the text of the user's line: what it calls of C has no frame."""
LAUNCHERS = ("torch.distributed.run.", "torch.distributed.launcher.", "torch.distributed.elastic.agent.",
             "accelerate.commands.launch.", "deepspeed.launcher.")  # fmt: skip
HELPERS = ("multiprocessing.resource_tracker.", "multiprocessing.forkserver.", "torch._inductor.compile_worker.")
ROLES: Rows = (
    (WORKER, [Functions(("torch.utils.data._utils.worker.",), frozenset({"_worker_loop"}))]),
    (LAUNCHER, [Functions(LAUNCHERS),
                Functions(("torch.multiprocessing.spawn.",), frozenset({"join", "start_processes"}))]),
    (HELPER, [Functions(HELPERS)]),
)  # fmt: skip
"""What a process is for, by its main thread."""
GETS = frozenset({"__getitem__", "__getitems__", "__next__", "__iter__", "<listcomp>"})
"""Functions that torch calls to make samples; any other one makes a batch of them."""
Text = Callable[[str, int], str]
Key = tuple["Span | None", str, str]
"""The user's line, the kind, and the function that the line calls."""


def process(pid: int, threads: Mapping[int, Samples], text: Text) -> Process:
    """One process: its role, and what the thread of it that trains does, the main thread where none does. `text` reads
    a line of source."""
    role = _role(threads.get(pid, Samples()))
    sums = {number: _sums(samples, text, role) for number, samples in threads.items()}
    thread = max(sums, key=lambda number: (_training(sums[number]), number == pid), default=pid)
    found = sums.get(thread, Counter())
    total = sum(found.values())
    kinds: Counter[str] = Counter()
    places: Counter[tuple[Span | None, str]] = Counter()
    calls: dict[tuple[Span | None, str], str] = {}
    for (where, kind, called), count in found.most_common():
        kinds[kind] += count
        places[where, kind] += count
        calls.setdefault((where, kind), called)
    lines = (Line(*key, count / total, calls[key]) for key, count in places.most_common(MAX_LINES))
    shares = {kind: count / total for kind, count in kinds.most_common()}
    return Process(pid, role, total, shares, tuple(lines), thread)


def _training(sums: Counter[Key]) -> int:
    return sum(count for (_, kind, _), count in sums.items() if kind in TRAINS)


def _role(main: Samples) -> str:
    """By most of the main thread's stacks."""
    roles: Counter[str] = Counter()
    for number, count in Counter(main.stack).items():
        roles[_matching(ROLES, _names(main, main.stacks[number])) or PROGRAM] += count
    return roles.most_common(1)[0][0] if roles else PROGRAM


def _sums(samples: Samples, text: Text, role: str) -> Counter[Key]:
    found: Counter[Key] = Counter()
    counts = Counter(samples.stack)
    for number, stack in enumerate(samples.stacks):
        found[_read(samples, stack, text, role)] += counts[number]
    return found


def _read(samples: Samples, numbers: tuple[int, ...], text: Text, role: str) -> Key:
    """One stack. A forked worker has its parent's frames as well, which say nothing."""
    if role == WORKER:
        names = _names(samples, numbers)
        numbers = numbers[: next((i for i, name in enumerate(names) if _matching(ROLES, [name])), len(numbers))]
    stack = read_stack(samples, numbers)
    where = stack.where[0] if stack.where else None
    kind = _in_worker(stack) if role == WORKER else _kind(stack, where, text)
    return where, kind, stack.libraries[-1] if stack.libraries else ""


def _names(samples: Samples, numbers: tuple[int, ...]) -> list[str]:
    return [qualified(file, name) for file, name, _, _ in (samples.frames[n] for n in numbers)]


def _matching(rows: Rows, names: Sequence[str]) -> str:
    """The first row that has one of these functions."""
    return next((kind for kind, own in rows if any(each.has(name) for each in own for name in names)), "")


def _kind(stack: Stack, where: Span | None, text: Text) -> str:
    names = [qualified(*frame) for frame in stack.frames]
    found = _matching(KINDS, names)
    if found == DATA and stack.stage == RECEIVING:
        return RECEIVE
    if found or stack.phase in (BACKWARD, OPTIMIZER):
        return found or stack.phase
    if names and any(each.has(names[0]) for each in WAITING):
        return WAITS
    if where is not None and not stack.libraries:
        line = text(where.file, where.line)
        found = next((kind for kind, words in TEXTS if words.search(line)), "")
    return found or stack.phase


def _in_worker(stack: Stack) -> str:
    """FETCH, COLLATE, or WAITS of a worker that waits for its next indices."""
    names = [qualified(*frame) for frame in stack.frames]
    inside = next((names[:i] for i, name in enumerate(names) if name.startswith(FETCHES)), None)
    if inside is None:
        return WAITS
    return COLLATE if inside and own_name(inside[-1]) not in GETS else FETCH
