"""`gobrrr compare`: two recordings of one program, from runs or traces, step, ledger, findings and ops side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import price
from gobrrr.cli.report import add_formats, format_of, put
from gobrrr.errors import GobrrrError
from gobrrr.report import formats
from gobrrr.report.formats import View

if TYPE_CHECKING:  # the engine is imported where it is used: `gobrrr --help` must not wait for it
    from gobrrr.ledger.comparison import Side
    from gobrrr.ledger.optimes import Key, OpTime
    from gobrrr.machine.model import Machine
    from gobrrr.recording.run import Recording


class CompareCommand:
    """Reads two recordings; needs no torch for traces."""

    name = "compare"
    help = "hold two recordings of one program against each other, op by op"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Arguments of the verb."""
        parser.add_argument("a", metavar="A", help="a folder that gobrrr run has written, or a trace")
        parser.add_argument("b", metavar="B", help="the other one")
        parser.add_argument("--ops", type=int, default=12, metavar="N", help="ops to list (12)")
        add_formats(parser)
        price.add_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read both, compare, tell; raises GobrrrError for what cannot be read."""
        from gobrrr.ledger.comparison import compared
        from gobrrr.report.comparison import show_comparison

        formats.check(form := format_of(args), "comparison")
        per_hour = price.asked(args)
        (a, walls_a, ops_a), (b, walls_b, ops_b) = (_side(word, per_hour) for word in (args.a, args.b))
        found = compared(a, b, (walls_a, walls_b), (ops_a, ops_b))
        num_ops = max(0, args.ops)
        if form == "text" and not args.output:
            show_comparison(found, sys.stdout, num_ops)
        else:
            put(formats.render(found, form, View(num_ops=num_ops)), args.output)
        return 0


def _side(word: str, per_hour: float | None) -> tuple[Side, tuple[float, ...], dict[Key, OpTime]]:
    """What is compared of one recording: its figures, its plain steps, its ops."""
    from msgspec.structs import replace

    from gobrrr.cli.diagnosis import judged
    from gobrrr.ledger.comparison import side
    from gobrrr.ledger.optimes import op_times
    from gobrrr.ledger.spans import step_spans
    from gobrrr.report.money import of_time

    recording, machine = _recording(word)
    ledger, report = judged(recording, machine)
    window = recording.window("profile")
    ops: dict[Key, OpTime] = {}
    if window is not None and recording.trace is not None:
        ops = op_times(recording.trace, step_spans(recording, window) + window.offset)
    codes = [finding.code for finding in report.findings]
    verdict = report.verdict
    found = side(ledger, word, codes, verdict.sentence, verdict.bound == "unreliable")
    cost = None if per_hour is None else of_time(found.step_ns, per_hour)
    return replace(found, step_cost=cost), ledger.step.walls, ops


def _recording(word: str) -> tuple[Recording, Machine]:
    """A run's folder with this machine's ceilings, or a trace with none."""
    from gobrrr.cli.ceilings import proven
    from gobrrr.machine.unknown import UNKNOWN
    from gobrrr.recording.offline import of_trace
    from gobrrr.recording.run import load_run
    from gobrrr.recording.sources import find, read

    path = Path(word)
    if path.is_dir() and any(path.glob("rank*.journal")):
        recording = load_run(path)[0]
        return recording, proven(recording)
    sources = find([word])
    if len(sources) > 1:
        raise GobrrrError(f"{word} holds {len(sources)} traces", "name one of them")
    return of_trace(read(sources[0])), UNKNOWN


command = CompareCommand()
