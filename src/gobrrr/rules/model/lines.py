"""Time of user lines, and of the library functions that ran below them. No machine, no thresholds of rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gobrrr.ledger.model.ledger import HostGroup, Ledger, LineGroup, WorkerGroup
from gobrrr.recording.model.facts import LoaderFacts, Span
from gobrrr.rules.model.cores import first_span
from gobrrr.rules.model.evidence import worth_telling
from gobrrr.rules.model.finding import whole
from gobrrr.rules.model.shapes import Key, key
from gobrrr.rules.model.views import idle_at
from gobrrr.units import duration, share

WHOLE = 0.9
"""Share of its time that lies under a finding's line, from which it is not said how much that is."""
SAMPLING = 0.10
"""Relative error of a line's sampled time that a ceiling allows for: one standard deviation of a share of a third that
was seen in 200 samples."""


class Functions(NamedTuple):
    """Library functions by the start of their dotted name and, where given, by their own name."""

    prefixes: tuple[str, ...]
    own: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether `name` (module.function or module.Class.function) is one of them."""
        return name.startswith(self.prefixes) and (not self.own or name.rsplit(".", 1)[-1] in self.own)


class Spent(NamedTuple):
    """ns per step that some functions took below one user line; `line_ns` is all that the line took."""

    where: tuple[Span, ...]
    ns: float
    function: str
    line_ns: float
    sure: bool = True
    """False where a device works, and nobody saw whether it idles meanwhile."""
    rare: bool = False
    """It is in steps far longer than the usual one."""


FORMATTING = (
    Functions(("torch._tensor_str.", "numpy._core.arrayprint.", "numpy.core.arrayprint.")),
    Functions(("torch._tensor.",), frozenset({"__repr__", "__format__", "__str__"})),
)
COPYING = (
    Functions(("copy.",), frozenset({"deepcopy", "_deepcopy_dict", "_deepcopy_list", "_reconstruct"})),
    Functions(("torch.nn.modules.module.", "torch.optim.optimizer."), frozenset({"state_dict", "load_state_dict"})),
)
WRITING = (
    Functions(("torch.serialization.",), frozenset({"save", "_save", "_legacy_save"})),
    Functions(("torch.distributed.checkpoint.", "safetensors.", "shutil.", "tempfile.")),
    Functions(("h5py.",), frozenset({"__setitem__", "create_dataset", "write_direct", "resize", "flush"})),
    Functions(("zipfile.", "gzip."), frozenset({"write", "writestr", "compress"})),
    Functions(("pickle.",), frozenset({"dump", "dumps", "_dump", "_dumps", "save"})),
    Functions(("json.",), frozenset({"dump", "dumps", "encode", "iterencode", "_iterencode"})),
    Functions(("csv.", "yaml.", "logging.", "matplotlib.", "PIL.Image.Image.save", "sqlite3.")),
    Functions(("torch.utils.tensorboard.", "tensorboard.", "tensorboardX.", "wandb.", "mlflow.", "comet_ml.", "aim.")),
    Functions(("numpy.",), frozenset({"save", "savez", "savez_compressed", "savetxt", "tofile"})),
    Functions(("pandas.",), frozenset({"to_csv", "to_parquet", "to_json", "to_pickle"})),
    Functions(("pathlib.",), frozenset({"write_text", "write_bytes"})),
    Functions(
        ("tqdm.",), frozenset({"refresh", "display", "set_postfix", "set_postfix_str", "set_description", "write"})
    ),
    Functions(("rich.",), frozenset({"print", "update", "refresh"})),
    Functions(("torchvision.utils.",), frozenset({"save_image", "make_grid"})),
    Functions(
        ("transformers.", "accelerate.", "lightning.", "pytorch_lightning.", "composer.", "deepspeed."),
        frozenset({"_save_checkpoint", "save_checkpoint", "save_state", "save_model", "save_pretrained"}),
    ),
)
WAITING = (
    Functions(("requests.", "urllib3.", "urllib.request.", "http.client.", "httpx.", "httpcore.", "aiohttp.", "ssl.")),
    Functions(("socket.", "socketserver.", "selectors.", "asyncio.", "zmq.", "grpc.", "redis.", "paramiko.")),
    Functions(("subprocess.", "multiprocessing.", "concurrent.futures.", "threading.", "queue.")),
)
"""Libraries that talk to another thread, process or machine: what they do is wait for it."""
TRACEBACKS = (Functions(("traceback.", "linecache.", "torch.fx.traceback.", "torch.utils._traceback.")),)


def is_rare(ledger: Ledger, lines: Iterable[LineGroup]) -> bool:
    """Most of their time is in steps far longer than the usual one, which has not a third of it, nor a third of what
    would be in proportion: where steps get longer and longer, or are of two kinds, that is less of every line."""
    most, long = _and_of_long_steps(lines)
    _, other = _and_of_long_steps(ledger.lines)
    return ledger.wall > 0 and most - long < most * (1 - other / ledger.wall) / 3


def _and_of_long_steps(lines: Iterable[LineGroup]) -> tuple[float, float]:
    """ns per step of lines that were looked at, and by how much less the usual step has."""
    seen = [(line.ns, line.usual_share) for line in lines if line.usual_share is not None]
    return sum(ns for ns, _ in seen), sum(ns * (1 - usual) for ns, usual in seen)


def mostly_rare(found: Iterable[Spent]) -> bool:
    """Say whether most of the time that several lines took together is rare."""
    parts = [(each.ns, each.rare) for each in found]
    return sum(ns for ns, rare in parts if rare) > 0.5 * sum(ns for ns, _ in parts)


def averaged(ledger: Ledger, found: Iterable[Spent]) -> list[Spent]:
    """Lines are scaled to the median step; what is rare costs so much more per step as the mean one is longer."""
    longer = whole(ledger) / ledger.wall if ledger.wall > 0 else 1.0
    return [each._replace(ns=each.ns * longer, line_ns=each.line_ns * longer) if each.rare else each for each in found]


def own_name(function: str) -> str:
    """'Trainer.fit.<locals>.step' -> 'step': functions are named differently by different versions of Python."""
    return function.rsplit(".", 1)[-1]


def in_function(where: Iterable[Span], span: Span | None) -> bool:
    """Say whether one of these lines lies in the function of `span`."""
    return span is not None and any(
        at.file == span.file and own_name(at.function) == own_name(span.function) for at in where
    )


def brief_name(function: str) -> str:
    """'package.some.module.Class.method' -> 'Class.method of package': the whole name may be longer than a line."""
    package, *_, owner, name = function.split(".") if function.count(".") > 2 else ("", "", function)
    return f"{owner}.{name} of {package}" if package else function


def told_path(hot: tuple[tuple[str, float], ...], ns: float) -> str:
    """': 164 ms (74.1 %) in image.preprocess of transformers': what has most of a line's `ns` below it; empty where
    nothing is known."""
    return f": {duration(hot[0][1])} ({share(hot[0][1] / ns)}) in {brief_name(hot[0][0])}" if hot and ns > 0 else ""


def below(line: LineGroup | HostGroup | WorkerGroup, kinds: Sequence[Functions]) -> tuple[float, str]:
    """(ns per step, name) of the costliest of `kinds` below a line. Inclusive times nest, so they are never added."""
    if isinstance(line, HostGroup):
        name = next((f for f in line.functions if any(k.has(f) for k in kinds)), "")
        return (line.ns, name) if name else (0.0, "")
    found = [(min(ns, line.ns), name) for name, ns in line.libraries if any(k.has(name) for k in kinds)]
    return max(found, default=(0.0, ""))


def made_at(ledger: Ledger, where: Sequence[Span], pattern: str) -> tuple[Span, ...]:
    """Return the line of the files of `where` that has a pattern, in which {name} is what the innermost line calls, as
    one that makes a module. Nothing where there is none, or several."""
    of = {statement.span.place: statement for statement in ledger.statements}
    known = [of[span.place] for span in where if span.place in of]
    called = re.findall(r"([\w.]+)\(", known[0].text) if known else []
    names = "|".join(map(re.escape, called)) or r"\b\B"
    sought = re.compile(pattern.replace("{name}", f"(?:{names})"))
    found = {Span(one.span.file, line) for one in known for text, line in one.places.items() if sought.search(text)}
    return tuple(found) if len(found) == 1 else ()


def loader_made(ledger: Ledger, loader: LoaderFacts) -> tuple[Span, ...]:
    """Return the line that makes a loader, where its arguments stand, before the one that begins a pass over it."""
    begun = (loader.created_span,) if loader.created_span else ()
    return tuple(dict.fromkeys((*made_at(ledger, begun, r"\bDataLoader\("), *begun)))


def body(ledger: Ledger) -> list[LineGroup]:
    """Lines outside the loader: what a slow line costs there is the step's own."""
    return [line for line in ledger.lines if line.phase != "data"]


def spent(ledger: Ledger, kinds: Sequence[Functions], less: Sequence[Functions] = ()) -> list[Spent]:
    """Return the cost of `kinds` per user line outside the loader, costliest first; time in `less` belongs to another
    rule.

    From the sampler where it ran, else from the host time of the profiled steps.
    """
    groups: Iterable[LineGroup | HostGroup] = body(ledger) or [h for h in ledger.host if h.phase != "data"]
    lines: dict[Key, Spent] = {}
    for group in groups:
        ns, name = below(group, kinds)
        ns -= min(ns, below(group, less)[0])
        place = key(group.where)
        if place is None or ns <= 0:
            continue
        known = lines.get(place, Spent(group.where, 0.0, name, 0.0))
        lines[place] = Spent(known.where, known.ns + ns, known.function, known.line_ns + group.ns)
    every = [line._replace(rare=rare_at(ledger, place)) for place, line in lines.items()]
    return sorted((_idling(ledger, line) for line in every), key=lambda s: -s.ns)


def rare_at(ledger: Ledger, place: Key) -> bool:
    """Say whether the work at a line is rare."""
    return is_rare(ledger, (line for line in body(ledger) if key(line.where) == place))


def _idling(ledger: Ledger, found: Spent) -> Spent:
    """Return the part of it in which the device idles, where a device works: host work beside its kernels, and waits
    for them, cost nothing. Host time of profiled steps is idle time as it is."""
    if ledger.device is None or not body(ledger):
        return found
    idle = idle_at(ledger, found.where[0].place)
    if idle is None:
        return found._replace(sure=False)
    part = min(1.0, idle / found.line_ns)
    return found._replace(ns=part * found.ns, line_ns=part * found.line_ns)


def writes(ledger: Ledger) -> list[Spent]:
    """Return the cost of writing per user line: of the functions that write, and beside them of the system's calls that
    do (an fsync after json.dumps is in no library)."""
    held = {key(line.where): line.writing or 0.0 for line in body(ledger)}
    found = [
        each._replace(ns=min(each.line_ns, each.ns + held.get(key(each.where), 0.0)))
        for each in spent(ledger, WRITING, less=FORMATTING)
    ]
    return sorted(found, key=lambda each: -each.ns)


def telling(ledger: Ledger, found: list[Spent]) -> list[Spent]:
    """Return the lines that are worth a note; where only their sum is, that sum at the costliest line."""
    alone = [each for each in found if worth_telling(ledger, each.ns)]
    total = sum(each.ns for each in found)
    if alone or not worth_telling(ledger, total):
        return alone
    line_ns = sum(each.line_ns for each in found)
    return [found[0]._replace(ns=total, line_ns=line_ns, rare=mostly_rare(found))]


def claimed(ledger: Ledger) -> frozenset[Key]:
    """Lines most of whose time a specific rule explains: writing, copying, formatting, collecting garbage."""
    every = [*spent(ledger, FORMATTING + COPYING + WRITING), *writes(ledger)]
    lines = {key(s.where) for s in every if s.ns >= 0.5 * s.line_ns}
    collector = collecting(ledger)
    if collector is not None and (ledger.facts.gc_ns_per_step or 0.0) >= 0.5 * at(ledger, collector):
        lines.add(collector.place)
    return frozenset(place for place in lines if place is not None)


def at(ledger: Ledger, span: Span) -> float:
    """ns per step that the sampler saw at a line outside the loader."""
    return sum(line.ns for line in body(ledger) if key(line.where) == span.place)


def collecting(ledger: Ledger) -> Span | None:
    """The user's line that calls gc.collect(), where that is what collects."""
    return ledger.facts.gc_span if by_hand(ledger) else None


def by_hand(ledger: Ledger) -> bool:
    """gc.collect() takes more than the collections that come by themselves."""
    return (ledger.facts.gc_by_hand or 0.0) >= 0.5


def loop_line(ledger: Ledger) -> tuple[Span, ...]:
    """A line of the loop itself, for what is nobody's line: the optimizer's step, the model's call, the loader."""
    facts = ledger.facts
    called = (*(optimizer.span for optimizer in facts.optimizers), *(module.span for module in facts.modules))
    return first_span(*called, *(loader.created_span for loader in facts.loaders))
