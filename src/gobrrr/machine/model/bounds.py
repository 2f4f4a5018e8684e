"""Ceilings bound each other: none stays below what another one, or the program itself, has shown. Pure.

They are measured one after the other, on machines that are shared: a figure from a bad moment is contradicted by its
neighbours from better ones. Only ever upwards: what was reached once can be reached.
"""

from __future__ import annotations

import msgspec

from gobrrr.machine.model.figures import doubtful, figures, replaced
from gobrrr.machine.model.machine import Machine, Measured


def bounded(machine: Machine, busy_cores: float = 0.0) -> Machine:
    """The machine without figures that contradict each other. `busy_cores`: what a program kept busy here, mean.

    A product or copy at all threads is no slower than at one, and no more than `threads` times as fast as one; parallel
    work gets as many cores as the best product or copy gained by its threads, and as a program has kept busy.
    """
    known = figures(machine)
    lifted: dict[str, Measured] = {}
    for one, most in _pairs(machine, known):
        a, b = known[one], known[most]
        if b.median < a.median:
            lifted[most] = at_least(b, a.median)
        elif a.median * machine.threads < b.median:
            lifted[one] = at_least(a, b.median / machine.threads)
    machine = replaced(machine, lifted)
    return msgspec.structs.replace(machine, effective_cores=_cores(machine, busy_cores))


def at_least(measured: Measured, reached: float) -> Measured:
    """The figure, no lower than what was reached."""
    if reached <= measured.median:
        return measured
    return msgspec.structs.replace(measured, median=reached, high=max(measured.high, reached))


def _pairs(machine: Machine, known: dict[str, Measured]) -> list[tuple[str, str]]:
    """Keys of one thing at one thread and at all."""
    if machine.threads <= 1:
        return []
    products = [(k, k.replace("/1/", "/all/", 1)) for k in known if k.startswith("matmul/1/")]
    copies = [(k, k.replace("/1/", f"/{machine.threads}/", 1)) for k in known if k.startswith("copy/1/")]
    return [(one, most) for one, most in products + copies if most in known and known[one].count and known[most].count]


def _cores(machine: Machine, busy: float) -> Measured:
    """Effective cores, at least what threads gained where both figures are steady, and what a program kept busy."""
    most = float(machine.usable_cores or machine.logical_cores)
    known, doubted = figures(machine), set(doubtful(machine))
    steady = [pair for pair in _pairs(machine, known) if not doubted & set(pair) and known[pair[0]].median]
    gains = [known[all_].median / known[one].median for one, all_ in steady]
    return at_least(machine.effective_cores, min(most, max([busy, *gains])) if most else 0.0)
