"""BRR302 to BRR306: Python and library code that runs inside the step, charged to the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gobrrr.ledger.model.ledger import HostGroup, Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.recording.trace_files.stack_lines import BUILT_IN
from gobrrr.rules.data.wait_stages import rest_varies
from gobrrr.rules.model.cores import recovers
from gobrrr.rules.model.evidence import count, per_step, time, worth_telling
from gobrrr.rules.model.finding import TINY, Cause, Quantity, rule
from gobrrr.rules.model.lines import (
    COPYING,
    FORMATTING,
    SAMPLING,
    WRITING,
    Functions,
    Spent,
    at,
    averaged,
    below,
    body,
    brief_name,
    by_hand,
    claimed,
    collecting,
    in_function,
    loop_line,
    own_name,
    spent,
    telling,
    told_path,
    writes,
)  # fmt: skip
from gobrrr.rules.model.lines import WAITING as WAITS
from gobrrr.rules.model.shapes import Key, grouped, key, total
from gobrrr.rules.model.views import idle_at
from gobrrr.rules.overhead.small_op_loops import NEAR, loops
from gobrrr.rules.overhead.waits import standing, stands
from gobrrr.rules.sync.waits_for_host import between_launches, launches
from gobrrr.units import duration, share

IN_STEP = 0.05
"""Share of the step that code between ops must take (proposed: the share that mended programs got back would settle
it)."""
ENGINE = (Functions(("torch.autograd.",)), Functions(("torch._tensor.",), frozenset({"backward"})))
MOSTLY = 0.5
"""Share of a line's time that Python must have for its ops to be part of the same work."""
PYTHON = "Do it on whole tensors, less often, or after the loop; keep results as tensors till they are read."
LIBRARY = "Do it ahead of the step (in loader workers, once for all), on the device, or with a faster library."
MODULES = "It is what calling modules costs: torch.compile{graphs} or a larger batch; fewer, larger modules."
WAITING = "Nothing computes here: take the wait for a timer, a lock, a file or another process out of the step."
ENOUGH = 10
"""Samples of a line from which the function is named that most of them saw (proposed): with five of ten, half or more
is a matter of chance."""
CROWD = 0.01
"""Lines below this share of the step do not make a cluster."""

DISPATCH = 1_000.0
"""ns of a dispatch where no machine was measured: 1.0 to 1.2 us on those of the lab (BRR107.md)."""


class Cluster(NamedTuple):
    """Neighbouring lines of one function that keep the main thread busy between ops; ns per step."""

    where: tuple[Span, ...]
    ns: float
    with_ops_ns: float
    library: str
    """The function of a library that has most of it, if any."""
    num_lines: int
    hot: tuple[tuple[str, float], ...] = ()
    """A trace's library functions below the costliest line: the one that has most, what it calls; ns per step."""
    in_model: float = 0.0
    """Part of `ns` inside calls of modules: their cost beside their ops."""

    error: float = SAMPLING
    """Error of `ns`, as a share; a trace has no samples."""

    @property
    def most(self) -> float:
        """Return the ns per step that doing without these lines saves: their ops too, unless they are mostly ops (a
        call of the model)."""
        own = (1 + self.error) * self.ns
        return max(own, self.with_ops_ns) if self.ns >= MOSTLY * self.with_ops_ns else own


@rule("BRR302", "host", needs={"plain", "ops"})
def python_in_step(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Python or library work of the user between ops that no more specific rule explains."""
    # A trace names a function by its first line, or by the one where it was when the profiler began.
    here = "in this function" if "offline" in ledger.signals else "at this line"
    for found in _clusters(ledger, machine):
        if found.ns < IN_STEP * ledger.wall or not worth_telling(ledger, 0.7 * found.ns):
            continue
        library = f" in {brief_name(found.library)}" if found.library else ""
        ops = f", {duration(found.most)} with its ops" if found.most == found.with_ops_ns and not found.hot else ""
        yield Cause(
            saving=(0.3 * found.ns, 0.7 * found.ns, found.most),
            message=f"{duration(found.ns)} ({share(found.ns / ledger.wall)} of the step{ops}) is Python{library} "
            f"{here}, while no op runs{told_path(found.hot, found.ns)}",
            advice=_advice(found, ledger),
            where=found.where,
            evidence={
                "python_time": time(found.ns),
                "with_ops": time(found.with_ops_ns),
                "lines": count(found.num_lines),
            }
            | {f"in {name}": time(ns) for name, ns in found.hot},
        )


def _advice(found: Cluster, ledger: Ledger) -> str:
    if found.in_model >= MOSTLY * found.ns:
        return MODULES.format(graphs=", CUDA graphs" if ledger.device else "")
    if not found.hot:
        return WAITING if any(kind.has(found.library) for kind in WAITS) else PYTHON
    return WAITING if found.hot[0][0].startswith(BUILT_IN) else LIBRARY


def _clusters(ledger: Ledger, machine: Machine) -> list[Cluster]:
    """Busy lines, joined where they are neighbours in one function, costliest first."""
    taken = claimed(ledger) | {line for loop in loops(ledger, machine) for line in loop.lines}
    every = between_launches(ledger)[1] if launches(ledger) else ledger.host
    free = (g for g in every if g.where and g.phase not in ("data", "optimizer") and g.where[0].place not in taken)
    groups = grouped(free, lambda group: group.where[0].place)
    lines = {place: _line(ledger, machine, place, there) for place, there in groups.items()}
    busy = sorted(place for place, line in lines.items() if line.ns >= CROWD * ledger.wall)
    joined: list[list[Cluster]] = []
    for place in busy:
        last, here = joined[-1][-1].where[0] if joined else None, lines[place].where[0]
        if last and in_function([here], last) and abs(here.line - last.line) <= NEAR:
            joined[-1].append(lines[place])
        else:
            joined.append([lines[place]])
    found = sorted((_join(ledger, lines) for lines in joined), key=lambda c: -c.ns)
    return [cluster._replace(error=0.0) for cluster in found] if "offline" in ledger.signals else found


def _line(ledger: Ledger, machine: Machine, place: Key, groups: list[HostGroup]) -> Cluster:
    """One line's own time between ops. Issuing an op costs Python too: a line that makes ops is let that much."""
    ops = [op for op in ledger.ops if key(op.where) == place and op.phase not in ("backward", "data")]
    sampled = [line for line in body(ledger) if key(line.where) == place]
    # At the line that calls backward() torch's engine runs between ops. Unsampled, it is taken for that.
    in_backward = [line for line in sampled if line.phase == "backward"]
    engine = sum(below(line, ENGINE)[0] for line in in_backward) >= 0.5 * sum(line.ns for line in in_backward)
    between = sum(g.ns for g in groups if g.phase != "backward" or not engine)
    if between < TINY * (machine.dispatch.median or DISPATCH) * sum(op.calls for op in ops):
        between = 0.0
    if sum(stands(line, ledger, machine) for line in sampled) > 0.5 * between:
        between = 0.0  # it sleeps, waits or writes
    # The library function that has most of the line's samples, where there are enough to say so.
    others = [line for line in sampled if line.phase != "backward"] or sampled
    seen = [line for line in others if line.num_samples is None or line.num_samples >= ENOUGH]
    first = (name for line in seen for name, ns in line.libraries[:1] if ns >= MOSTLY * line.ns)
    named = next((name for name in first if not name.startswith("torch.")), "")
    most = max(groups, key=lambda g: g.ns)
    hot = tuple((name, part * most.ns) for name, part in most.hot) if between else ()
    in_model = sum(g.ns for g in groups if g.phase == "forward")
    return Cluster(most.where, between, between + total(ops), named, 1, hot, in_model)


def _join(ledger: Ledger, lines: list[Cluster]) -> Cluster:
    """Neighbours as one, no more than was sampled around them.

    The profiled steps slow Python down; the sampled ones do not. But a sample can only be taken where Python lets
    another thread run, which may be a line or a call further on: the whole function and its call are the bound.
    """
    top = max(lines, key=lambda line: line.ns)
    ns = sum(line.ns for line in lines)
    if "samples" in ledger.signals:
        around = [line for line in body(ledger) if line.where and _around(line.where[0], top.where)]
        places = {key(line.where) for line in around}
        ops = total(op for op in ledger.ops if key(op.where) in places and op.phase not in ("backward", "data"))
        ns = min(ns, max(0.0, sum(line.ns for line in around) - ops))
    in_model = sum(line.in_model for line in lines)
    return Cluster(top.where, ns, sum(line.with_ops_ns for line in lines), top.library, len(lines), top.hot, in_model)


def _around(at: Span, where: tuple[Span, ...]) -> bool:
    """In the function of the innermost line of `where`, or at the line that calls it."""
    return in_function([at], where[0]) or (len(where) > 1 and at.place == where[1].place)


@rule("BRR303", "host", needs={"plain"})
def deep_copy_every_step(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """copy.deepcopy of a model or its state, or clones of a state_dict: the clones are the cost, not the dict."""
    found = []
    for line in spent(ledger, COPYING, less=FORMATTING + WRITING):
        clones = total(op for op in ledger.named("aten::clone", "aten::copy_") if key(op.where) == key(line.where))
        found.append(line._replace(ns=max(line.ns, min(clones, line.line_ns))))
    found.sort(key=lambda line: -line.ns)
    advice = "Copy when the copy is used: on a better score, every few hundred steps, or at the end."
    yield from _seldom(ledger, machine, found, "{own} copies {time}", advice)


@rule("BRR304", "host", needs={"plain"})
def write_every_step(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A checkpoint, a log, a plot or another write in every step."""
    advice = "Write every few hundred steps, or hand it to a background thread."
    yield from _seldom(ledger, machine, writes(ledger), "{function} takes {time}", advice)
    stands = [each.line for each in standing(ledger, machine) if each.writes]
    yield from _seldom(ledger, machine, stands, "here the loop writes for {time}, and no op runs", advice)


@rule("BRR305", "host", needs={"plain"})
def formatting_tensors(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """print or f-string of a tensor in every step."""
    advice = "Print every few hundred steps, and only numbers: loss.item(), x.mean().item()."
    found = spent(ledger, FORMATTING)
    yield from _seldom(ledger, machine, found, "turning a tensor into text takes {time}", advice)


def _seldom(
    ledger: Ledger, machine: Machine, found: list[Spent], message: str, advice: str
) -> Iterator[Cause]:  # fmt: skip
    """Work that a program may as well do once in a hundred steps: nearly all of it comes back, and with it what the
    rest of the step takes longer because its data has left the caches."""
    for line in averaged(ledger, telling(ledger, found)):
        said = {"own": own_name(line.function), "function": line.function, "time": per_step(ledger, line.ns, line.rare)}
        function = {"function": Quantity(line.function)} if line.function else {}
        most = (1 + SAMPLING) * line.ns + recovers(ledger, machine, line.ns)
        yield Cause(
            saving=(0.6 * line.ns if line.sure else 0.0, 0.95 * line.ns, most),
            message=message.format_map(said), advice=advice, where=line.where,
            evidence={"time": time(line.ns), "line": time(line.line_ns)} | function, rare=line.rare,
        )  # fmt: skip


@rule("BRR306", "host", needs={"plain", "facts"}, remedies=("gc_freeze",))
def garbage_collection(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Python's collector inside the step: called by hand, or set off by what the step allocates."""
    facts = ledger.facts
    span = collecting(ledger)
    cost, rare = _collections(ledger)
    at_line = at(ledger, span) if span else 0.0
    if ledger.device is not None and span and (idle := idle_at(ledger, span.place)) is not None:
        cost, at_line = min(cost, idle), min(at_line, idle)
    if not worth_telling(ledger, 0.8 * cost):
        return
    runs, often = facts.gc_runs_per_step, "again and again"
    if runs:
        often = f"{runs:.1f} times per step" if runs >= 0.95 else f"once in {1 / runs:.0f} steps"
    yield Cause(
        saving=((0.6 if span else 0.2) * cost, (0.95 if span else 0.8) * cost, max((1 + SAMPLING) * cost, at_line)),
        message=f"{_who_collects(ledger)} {often} and takes {per_step(ledger, cost, rare)}", advice=_instead(ledger),
        where=(span,) if span else loop_line(ledger) if by_hand(ledger) else (),
        evidence={"collections": time(cost)} | ({"runs_per_step": count(runs)} if runs is not None else {}),
        confidence="measured", rare=rare,
    )  # fmt: skip


def _collections(ledger: Ledger) -> tuple[float, bool]:
    """ns per step in collections of the kind that takes more; whether they are rare: of the mean step then, as the
    usual one shows few. What comes by itself while the loop waits for a batch is the loader's."""
    facts, asked = ledger.facts, by_hand(ledger)
    all_ns, usual, own = facts.gc_ns_per_step or 0.0, facts.gc_usual_ns, ledger.account("gc")
    part = (facts.gc_by_hand or 0.0) if asked else 1 - (facts.gc_by_hand or 0.0)
    if usual is not None and usual < 0.5 * all_ns:
        mean = all_ns * max(1.0, ledger.step.mean_ns / ledger.wall)
        return part * (mean if asked else min(mean, usual + rest_varies(ledger))), True
    return part * (max(own, all_ns) if asked or "ops" not in ledger.signals else own), False


def _who_collects(ledger: Ledger) -> str:
    library = ledger.facts.gc_library
    if not by_hand(ledger):
        return "the garbage collector runs by itself"
    at = f" at {library.file.rpartition('-packages/')[2]}:{library.line}" if library and not collecting(ledger) else ""
    return f"gc.collect(){at} runs"


def _instead(ledger: Ledger) -> str:
    if collecting(ledger):
        return "Remove gc.collect() from the loop: it frees cycles only, never a tensor that is still referenced."
    if by_hand(ledger):
        return "Call gc.freeze() before the loop: collections then leave out what is there already."
    return "Call gc.freeze() before the loop, or collect every few hundred steps with the automatic collector off."
