"""BRR315, and what BRR304 shares with it: lines of the loop that compute nothing, for they wait or write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gobrrr.ledger.model.ledger import Ledger, LineGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.cores import crowded, recovers
from gobrrr.rules.model.evidence import per_step, time
from gobrrr.rules.model.finding import Cause, Quantity, rule, whole
from gobrrr.rules.model.lines import SAMPLING, WAITING, Spent, averaged, below, claimed, is_rare, telling
from gobrrr.rules.model.lines import body as outside_the_loader
from gobrrr.rules.model.shapes import key, total
from gobrrr.rules.model.views import idle_at, waits_for_device
from gobrrr.rules.overhead.small_op_loops import NEAR

MOSTLY = 0.5
"""Share of a line's time in which it must stand to be told so."""
FEW = 0.1
"""Share of a line's time up to which ops beside its standing, or moments in which it is held, are none to speak of."""
BYTES = 0.1
"""Bytes per ns of a line from which writing is what it does (proposed): 0.1 GB/s. Copies into the system's cache run
at 1 GB/s and more, fsync holds the thread, and Python that makes text to write comes to 0.01 to 0.05."""


class Standing(NamedTuple):
    """A user line at which the loop stands."""

    line: Spent
    """Its function is the library's that waits, if any."""
    writes: bool
    sure: bool
    """The system said what held the thread; else it was off the processor, and nothing more is known."""


def stands(line: LineGroup, ledger: Ledger, machine: Machine) -> float:
    """ns per step in which a line's thread waits or writes: what the system says, however crowded the cores are. Where
    it said nothing, a thread off the processor stands only if nobody else has the cores, for it may want one.
    A wait for the device is BRR501's."""
    if waits_for_device(ledger, key(line.where)):
        return 0.0
    if line.held is None:
        return line.ns if line.waiting and not crowded(ledger, machine) else 0.0
    return line.ns if _writes(line, ledger) else min(line.ns, line.held + (line.writing or 0.0))


def _writes(line: LineGroup, ledger: Ledger) -> bool:
    """It writes, or is held now and then right beside a line that does: files are opened, flushed and closed there."""
    if _writes_itself(line):
        return True
    held = (line.held or 0.0) + (line.writing or 0.0)
    return held > FEW * line.ns and any(_writes_itself(each) and _near(each, line) for each in ledger.lines)


def _writes_itself(line: LineGroup) -> bool:
    """Say whether a line writes: what goes into the system's cache holds no thread, and is known by its bytes."""
    held, writing = line.held or 0.0, line.writing or 0.0
    stands = held + writing >= MOSTLY * line.ns and writing >= held
    return bool(line.where) and line.ns > 0 and (stands or (line.written or 0.0) >= BYTES * line.ns)


def _near(one: LineGroup, other: LineGroup) -> bool:
    if not one.where or not other.where or one.where[0].file != other.where[0].file:
        return False
    same = one.where[0].function == other.where[0].function
    return same and abs(one.where[0].line - other.where[0].line) <= NEAR


def standing(ledger: Ledger, machine: Machine) -> list[Standing]:
    """Lines outside the loader, costliest first, that mostly stand and make hardly an op, in no library or in one that
    waits. What a model's line is off the processor for may be its ops' threads: there the system must have said it."""
    found = []
    taken = claimed(ledger)
    for line in outside_the_loader(ledger):
        place, known = key(line.where), line.held is not None
        if place is None or place in taken or not (line.phase == "other" or (known and line.phase == "forward")):
            continue
        if line.libraries and below(line, WAITING)[0] < MOSTLY * line.ns:
            continue
        held = stands(line, ledger, machine)
        ops = total(op for op in ledger.ops if key(op.where) == place)
        between = sum(group.ns for group in ledger.host if key(group.where) == place)
        if held < MOSTLY * line.ns or ops > FEW * line.ns or (not known and between < MOSTLY * line.ns):
            continue
        seen = ledger.device is None or idle_at(ledger, place) is not None
        if ledger.device is not None and seen:
            held = min(held, between)  # beside its kernels it costs nothing
        spent = Spent(line.where, max(0.0, held - ops), below(line, WAITING)[1], line.ns, seen, is_rare(ledger, [line]))
        found.append(Standing(spent, known and _writes(line, ledger), known))
    return sorted(found, key=lambda each: -each.line.ns)


@rule("BRR315", "host", needs={"plain"})
def wait_every_step(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A sleep, a lock, a queue, a request or another process that the loop waits for in every step."""
    waits = [each for each in standing(ledger, machine) if not each.writes]
    sure = {key(each.line.where) for each in waits if each.sure}
    for line in averaged(ledger, telling(ledger, [each.line for each in waits])):
        beside = min(line.ns, max(0.0, whole(ledger, line.rare) - line.ns))
        what = line.function or "a timer, lock, file, pipe or process"
        yield Cause(
            saving=(
                0.3 * beside if line.sure else 0.0,
                max(beside, 0.5 * line.ns),
                (1 + SAMPLING) * line.ns + recovers(ledger, machine, line.ns),
            ),
            message=f"the loop waits {per_step(ledger, line.ns, line.rare)}{',' if line.rare else ''} here for {what}, "
            "and computes nothing",
            advice="Take it out of the step, or begin it in a thread or process before the step computes and fetch the "
            "answer in the next. Where it has one already, ask for the next answer before this one is used.",
            where=line.where,
            evidence={"time": time(line.ns), "line": time(line.line_ns)}
            | ({"function": Quantity(line.function)} if line.function else {}),
            confidence="derived" if key(line.where) in sure else "inferred",
            rare=line.rare,
        )
