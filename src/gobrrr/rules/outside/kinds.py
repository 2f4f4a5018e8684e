"""A process by its sampled stacks: in which kind of work it is, and at which of the user's lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gobrrr.ledger.host.stacks import RECEIVING, qualified, read_stack
from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import Samples
from gobrrr.rules.model.lines import FORMATTING, WAITING, WRITING, Functions, own_name
from gobrrr.rules.outside import look
from gobrrr.rules.outside.look import Line, Process

MAX_LINES = 5
"""Lines of a process that are kept."""
Rows = Sequence[tuple[str, Sequence[Functions]]]
FETCHES = "torch.utils.data._utils.fetch."
COMPILERS = ("torch._dynamo.convert_frame.", "torch._inductor.graph.", "torch._inductor.codecache.",
             "torch._inductor.scheduler.", "torch._inductor.async_compile.", "triton.compiler.")  # fmt: skip
DEVICES = ("torch.cuda.", "torch.xpu.", "torch.mps.", "torch.accelerator.")
KINDS: Rows = (
    (look.IMPORTS, [Functions(("<frozen importlib",))]),
    (look.COMPILE, [Functions(COMPILERS)]),
    (look.FETCH, [Functions((FETCHES,))]),
    (look.DATA, [Functions(("torch.utils.data.dataloader.",))]),
    (look.RANKS, [Functions(("torch.distributed.distributed_c10d.", "torch.distributed._functional_collectives."))]),
    (look.DEVICE, [Functions(DEVICES, frozenset({"synchronize"}))]),
    (look.LOADING, [Functions(("torch.serialization.",), frozenset({"load", "_load", "_legacy_load"}))]),
    (look.SAVING, [*WRITING, *FORMATTING]),
)
"""Kinds of work by a library's function anywhere on the stack; the first row that holds counts. Imports are those of
the innermost line of the user's: a module may train while it is imported."""
TEXTS = (
    (look.DEVICE, re.compile(r"\.(?:item|tolist|cpu|numpy)\(|synchronize\(")),
    (look.SAVING, re.compile(r"\bprint\(|\.write\(|\.flush\(|fsync\(|\.dumps?\(")),
    (look.WAITS, re.compile(r"\bsleep\(|\.acquire\(|\.wait\(|\.join\(\)")),
)
"""Kinds of work by the text of the user's line: what it calls of C has no frame."""
LAUNCHERS = ("torch.distributed.run.", "torch.distributed.launcher.", "torch.distributed.elastic.agent.",
             "accelerate.commands.launch.", "deepspeed.launcher.")  # fmt: skip
HELPERS = ("multiprocessing.resource_tracker.", "multiprocessing.forkserver.", "torch._inductor.compile_worker.")
ROLES: Rows = (
    (look.WORKER, [Functions(("torch.utils.data._utils.worker.",), frozenset({"_worker_loop"}))]),
    (look.LAUNCHER, [Functions(LAUNCHERS), Functions(("torch.multiprocessing.spawn.",), frozenset({"join"}))]),
    (look.HELPER, [Functions(HELPERS)]),
)
"""Purpose of a process, by its main thread."""
GETS = frozenset({"__getitem__", "__getitems__", "__next__", "__iter__", "<listcomp>"})
"""Functions that torch calls to make samples; any other one makes a batch of them."""
Text = Callable[[str, int], str]
Key = tuple["Span | None", str, str]
"""The user's line, the kind, and the function that the line calls."""


def process(pid: int, threads: Mapping[int, Samples], text: Text) -> Process:
    """One process: its role, and what the thread of it that trains does, the main thread where none does. `text` reads
    a line of source."""
    main, roles = threads.get(pid, Samples()), Counter[str]()
    for number, count in Counter(main.stack).items():
        roles[_matching(ROLES, _names(main, main.stacks[number])) or look.PROGRAM] += count
    role = roles.most_common(1)[0][0] if roles else look.PROGRAM
    sums = {number: _sums(samples, text, role) for number, samples in threads.items()}
    training = {n: sum(num for (_, kind, _), num in found.items() if kind in look.TRAINS) for n, found in sums.items()}
    thread = max(sums, key=lambda number: (training[number], number == pid), default=pid)
    kinds, places = Counter[str](), Counter[tuple[Span | None, str]]()
    calls: dict[tuple[Span | None, str], str] = {}
    for (where, kind, called), count in sums.get(thread, Counter()).most_common():
        kinds[kind] += count
        places[where, kind] += count
        calls.setdefault((where, kind), called)
    total = sum(kinds.values())
    lines = (Line(*key, count / total, calls[key]) for key, count in places.most_common(MAX_LINES))
    return Process(pid, role, total, {kind: n / total for kind, n in kinds.most_common()}, tuple(lines), thread)


def _sums(samples: Samples, text: Text, role: str) -> Counter[Key]:
    counts, found = Counter(samples.stack), Counter[Key]()
    for number, stack in enumerate(samples.stacks):
        found[_read(samples, stack, text, role)] += counts[number]
    return found


def _read(samples: Samples, numbers: tuple[int, ...], text: Text, role: str) -> Key:
    """One stack. A forked worker has its parent's frames as well, which say nothing."""
    names = _names(samples, numbers)
    if role == look.WORKER:
        names = names[: next((i for i, name in enumerate(names) if _matching(ROLES, [name])), len(names))]
    stack = read_stack(samples, numbers[: len(names)])
    where, calls = next(iter(stack.where), None), next(iter(stack.libraries[::-1]), "")
    if role == look.WORKER:
        return where, _in_worker(names), calls
    own = next((i for i, n in enumerate(numbers) if where and samples.frames[n][0] == where.file), len(names))
    kind = _matching(KINDS[:1], names[:own]) or _matching(KINDS[1:], names)
    if kind == look.DATA and stack.stage == RECEIVING:
        kind = look.RECEIVE
    elif not kind and stack.phase not in (look.BACKWARD, look.OPTIMIZER):
        if names and any(each.has(names[0]) for each in WAITING):
            kind = look.WAITS
        elif where is not None and not calls:
            line = text(where.file, where.line)
            found = [each for each, words in TEXTS if words.search(line)]
            kind = found[0] if len(found) == 1 else ""  # of several calls in a line it is not known which one runs
    return where, kind or stack.phase, calls


def _names(samples: Samples, numbers: tuple[int, ...]) -> list[str]:
    return [qualified(file, name) for file, name, _, _ in (samples.frames[n] for n in numbers)]


def _matching(rows: Rows, names: Sequence[str]) -> str:
    """The first row that has one of these functions."""
    return next((kind for kind, own in rows if any(each.has(name) for each in own for name in names)), "")


def _in_worker(names: Sequence[str]) -> str:
    """FETCH, COLLATE, or WAITS of a worker that waits for its next indices."""
    inside = next((names[:i] for i, name in enumerate(names) if name.startswith(FETCHES)), None)
    if inside is None:
        return look.WAITS
    return look.COLLATE if inside and own_name(inside[-1]) not in GETS else look.FETCH
