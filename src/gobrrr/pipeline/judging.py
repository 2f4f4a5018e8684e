"""Recording, ledger, findings, report: what every verb does with a recording; and two of one program compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gobrrr.data.advice import simulate
from gobrrr.errors import GobrrrError
from gobrrr.ledger.comparison import Comparison, Side, compared, side
from gobrrr.ledger.model.ledger import Ledger, Ways
from gobrrr.ledger.ops.op_times import Key, OpTime, op_times
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.machine.model.machine import UNKNOWN, Machine
from gobrrr.pipeline.ceilings import proven
from gobrrr.pipeline.statements import with_statements
from gobrrr.recording.run_folder.run import load_run
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import find, read
from gobrrr.rehearsal.perform import SECONDS
from gobrrr.report.told.money import of_time
from gobrrr.rules.verdict.report import Report


def judged(
    profiled: Profiled,
    machine: Machine,
    /,
    *,
    portability: bool = False,
    stage: str = "",
    rehearsal_s: float = SECONDS,
    also: Sequence[str] = (),
    **told: Any,
) -> tuple[Ledger, Report]:
    """Account, judge, report. `told` goes into the report as it is.

    `stage`: the Python that rehearses what the findings promise, in `rehearsal_s` at most, and the remedies `also`;
    without one they stay estimated.
    """
    from gobrrr.ledger.build import build_ledger
    from gobrrr.ledger.ops.raised_ceilings import beaten, faster
    from gobrrr.rules import judge
    from gobrrr.rules.verdict.build import build

    ledger = simulated(build_ledger(profiled, machine))
    if ledger.device is None and (factor := beaten(ledger.roofline)) > 1:
        machine = faster(machine, factor)
        ledger = simulated(build_ledger(profiled, machine))
        ledger = replace(ledger, roofline=replace(ledger.roofline, raised=factor))
    ledger = with_statements(ledger, profiled.recording.start.clock[0])
    play = None
    if stage:
        from gobrrr.rehearsal.findings import Rehearsal

        play = Rehearsal(ledger, machine, profiled.recording.start, stage, rehearsal_s, also)
    findings, skipped = judge(ledger, machine, portability=portability, rehearsed=play)
    known = machine if machine.fingerprint else None
    return ledger, build(ledger, known, findings, skipped=skipped, portability=portability,
                         rehearsed=play.outcomes if play else (), **told)  # fmt: skip


FINEST, LARGEST_BATCH = 16_384, 1_024
"""Longer rows are simulated in units of several tokens, and larger batches as this one: a file may say anything, and
the answer is to be there in a second."""


def simulated(ledger: Ledger) -> Ledger:
    """The ledger with what padding, bucketing and packing would make of its batches, where their lengths are known."""
    found = ledger.sequences
    if found is None or not found.lengths:
        return ledger
    unit = -(-found.widest // FINEST)
    histogram: Counter[int] = Counter()
    for length, number in found.lengths:
        histogram[-(-length // unit)] += number
    batch_size = min(found.batch_size, LARGEST_BATCH)
    advice = simulate(histogram, batch_size=batch_size, capacity=-(-found.widest // unit))
    ways = Ways(
        advice.pad_to_cap, advice.pad_in_collate, advice.bucketing, advice.packing, advice.packing_bound,
        advice.long_share, advice.nothing_to_gain,
    )  # fmt: skip
    return replace(ledger, sequences=replace(found, ways=ways))


def compare(a: str, b: str, per_hour: float | None = None) -> Comparison:
    """Compare two recordings, each a run's folder or a trace. Raises GobrrrError for one that cannot be read, or has no
    steps."""
    (side_a, walls_a, ops_a), (side_b, walls_b, ops_b) = (_side(word, per_hour) for word in (a, b))
    return compared(side_a, side_b, (walls_a, walls_b), (ops_a, ops_b))


def _side(word: str, per_hour: float | None) -> tuple[Side, tuple[float, ...], dict[Key, OpTime]]:
    """Return one recording's side of the comparison: its figures, its plain steps, its ops."""
    profiled, machine = _recording(word)
    recording = profiled.recording
    ledger, report = judged(profiled, machine)
    if not ledger.wall:
        raise GobrrrError(f"{word} has no steps to compare", f"gobrrr report {word} shows what was recorded")
    window = recording.window("profile")
    ops: dict[Key, OpTime] = {}
    if window is not None and recording.trace is not None:
        ops = op_times(recording.trace, step_spans(recording, window) + window.offset)
    codes = [finding.code for finding in report.findings]
    verdict = report.verdict
    found = side(ledger, word, codes, verdict.sentence, verdict.bound == "unreliable")
    cost = None if per_hour is None else of_time(found.step_ns, per_hour)
    return replace(found, step_cost=cost), ledger.step.walls, ops


def _recording(word: str) -> tuple[Profiled, Machine]:
    """A run's folder with this machine's ceilings, or a trace with none."""
    path = Path(word)
    if path.is_dir() and any(path.glob("rank*.journal")):
        profiled = Profiled(load_run(path)[0])
        return profiled, proven(profiled)
    sources = find([word])
    if len(sources) > 1:
        raise GobrrrError(f"{word} holds {len(sources)} traces", "name one of them")
    return Profiled(of_trace(read(sources[0]))), UNKNOWN
