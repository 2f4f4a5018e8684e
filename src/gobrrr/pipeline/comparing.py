"""From two recordings of one program, runs or traces, to what is held against each other."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from gobrrr.errors import GobrrrError
from gobrrr.ledger.comparison import Comparison, Side, compared, side
from gobrrr.ledger.ops.op_times import Key, OpTime, op_times
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.machine.model.machine import UNKNOWN, Machine
from gobrrr.pipeline.ceilings import proven
from gobrrr.pipeline.judging import judged
from gobrrr.recording.run_folder.run import load_run
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import find, read
from gobrrr.report.told.money import of_time


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
        raise GobrrrError(f"{word} has no steps to compare", f"what it has: gobrrr report {word}")
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
