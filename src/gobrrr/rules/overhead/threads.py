"""BRR309: more or fewer threads inside an op than this machine has cores for."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.cores import STARVED, free_cores, left_by_others, starved
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Finding, Quantity, finding, rule
from gobrrr.rules.model.lines import loop_line
from gobrrr.rules.model.shapes import CEILINGS, float_dtype, total
from gobrrr.rules.overhead.small_op_loops import is_tiny
from gobrrr.units import duration, share

TOO_FEW = 0.6
"""Threads per free core below which they are too few. SageMaker calls a processor underused below 0.7; the rest is for
the error of measuring effective cores (proposed: that error on more machines would settle it)."""
TOO_MANY = 1.5
"""Threads per effective core above which they are too many. The tuning guide asks for no more threads than cores; the
rest is for the same error (proposed, likewise)."""
COSTS_PER_DOUBLING = 0.13
"""Share of op time lost per doubling of threads over cores. Measured on 2 cores: a training step of 5.4 ms takes
6.7 ms with 8 threads, 8.8 with 16 and 15.7 with 32; published with 13 to 39 % for 4 and 8."""
REALISED = 0.7
"""Part of the speed-up of the ceilings that whole steps reach: some of their ops do not divide."""


@rule("BRR309", "wrong-number-of-threads", "overhead", needs={"plain", "ops", "facts"}, remedies=("intraop_threads",))
def wrong_number_of_threads(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Intra-op threads against the cores that were free: idle ones, or threads that wait for each other."""
    threads = ledger.facts.settings.threads or ledger.threads
    cores, free = machine.effective_cores.median, free_cores(ledger, machine)
    if cores <= 0 or ledger.device is not None:  # there the host's ops only launch
        return
    if threads < TOO_FEW * free:
        yield from _too_few(ledger, machine, threads, free)
    elif threads > TOO_MANY * cores and threads > _default(machine):
        yield from _too_many(ledger, machine, threads, cores)


def _default(machine: Machine) -> float:
    """Return the threads of a program that sets none, unless a quota grants fewer."""
    return min(machine.threads, TOO_MANY * machine.quota) if machine.quota else machine.threads


def _too_few(ledger: Ledger, machine: Machine, threads: int, cores: float) -> Iterator[Finding]:
    busy = ledger.facts.process_load
    if busy is not None and busy > 0.8 * cores:
        return  # loader workers or other threads of the program have the cores already
    heavy = [op for op in ledger.ops if op.phase != "data" and not is_tiny(op, machine)]
    # Effective cores are a median of a bad and a good moment; at most all threads get what other processes left.
    most = max(1.0, min(max(cores, machine.threads), left_by_others(ledger, machine)) / threads)
    gain = sum(op.ns * (1 - 1 / min(most, _speed_up(op, machine, threads))) for op in heavy)
    if not worth_telling(ledger, REALISED * gain):
        return
    sure = (starved(ledger) or 0.0) <= STARVED
    yield finding(
        "BRR309",
        ledger,
        low=0.4 * gain if sure else 0.0,
        expected=REALISED * gain,
        ceiling=total(heavy) * (1 - 1 / most),
        message=f"ops run on {threads} of {cores:.1f} cores{_left(ledger, machine)}, and {duration(total(heavy))} "
        f"({share(total(heavy) / ledger.wall)}) of the step is work that divides",
        advice=f"Remove what limits the threads (torch.set_num_threads, OMP_NUM_THREADS), or set {_fitting(cores)}.",
        where=_place(ledger),
        evidence=_evidence(ledger, threads, cores, heavy),
        of=heavy,
        level=None if sure else "note",  # more threads wait for each other where the ones that there are get no core
    )


def _left(ledger: Ledger, machine: Machine) -> str:
    return " that other processes left it" if left_by_others(ledger, machine) < machine.effective_cores.median else ""


def _too_many(ledger: Ledger, machine: Machine, threads: int, cores: float) -> Iterator[Finding]:
    ops = [op for op in ledger.ops if op.phase != "data"]
    lost = sum(op.ns - op.floor_ns for op in ops)
    expected = min(lost, COSTS_PER_DOUBLING * log2(threads / cores) * total(ops))
    if not worth_telling(ledger, expected):
        return
    yield finding(
        "BRR309",
        ledger,
        low=0.25 * expected,
        expected=expected,
        ceiling=lost,
        message=f"{threads} threads share {cores:.1f} effective cores, and every parallel op waits for its slowest "
        f"thread: about {share(expected / ledger.wall)} of the step",
        advice=f"Call torch.set_num_threads({_fitting(cores)}), or set OMP_NUM_THREADS before the program starts.",
        where=_place(ledger),
        evidence=_evidence(ledger, threads, cores, ops),
        of=ops,
        confidence="inferred",
    )


def _speed_up(op: OpGroup, machine: Machine, threads: int) -> float:
    """Return the speed-up of this op on all threads over `threads`, by the ceilings measured here; 1 where it is not
    modelled."""
    now = then = None
    if op.bound == "compute":
        dtype = CEILINGS.get(float_dtype(op) or "", "fp32")
        now, then = machine.flop_rate(dtype, threads), machine.flop_rate(dtype, machine.threads)
    elif op.bound == "bandwidth" and op.bytes and op.calls:
        size = op.bytes / op.calls
        now, then = machine.byte_rate(size, threads), machine.byte_rate(size, machine.threads)
    return max(1.0, then / now) if now and then else 1.0


def _fitting(cores: float) -> int:
    return max(1, round(cores))


def _place(ledger: Ledger) -> tuple[Span, ...]:
    span = ledger.facts.settings.threads_span
    return (span,) if span else loop_line(ledger)


def _evidence(ledger: Ledger, threads: int, cores: float, ops: list[OpGroup]) -> dict[str, Quantity]:
    load = ledger.facts.process_load
    found = {"threads": count(threads), "effective_cores": count(cores), "op_time": time(total(ops))}
    return found | ({"cores_busy": ratio(load)} if load is not None else {})
