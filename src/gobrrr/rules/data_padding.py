"""BRR409: batches that are mostly padding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import mean

from gobrrr.ledger.model import Ledger
from gobrrr.machine.model import Machine
from gobrrr.recording.facts import InputFacts, Span
from gobrrr.rules.cores import first_span, main_loader
from gobrrr.rules.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model import Finding, finding, rule
from gobrrr.rules.shapes import costliest_line
from gobrrr.units import share


@rule("BRR409", "padding", "data", needs={"plain", "facts"}, remedies=("trim_padding",))
def padding(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Sequences that are mostly padding, on which the model works as on the rest."""
    inputs = [given for given in ledger.facts.inputs if len(given.shape) >= 2]
    padded = [given for given in inputs if (given.pad_share or 0.0) > PADDED]
    if not padded or max(p.num_bytes for p in padded) < LARGE * max(given.num_bytes for given in inputs):
        return
    worst = max(padded, key=lambda given: (given.num_bytes, given.pad_share or 0.0))
    alike = _least_padded(inputs, worst)
    pad, longest = mean(given.pad_share or 0.0 for given in alike), _longest(alike)
    if pad <= PADDED:
        return
    work = sum(ledger.phase(phase) for phase in MODEL)
    attention = min(work, sum(op.ns for op in ledger.ops if _is_attention(op.name, op.shapes, worst)))
    packed = attention * (1 - (1 - pad) ** 2) + (work - attention) * pad
    sorted_by_length = work * (pad - LEFT) / (1 - LEFT)
    cut = min(pad, 1 - longest / worst.shape[1]) if longest is not None else (pad - LEFT) / (1 - LEFT)
    expected = max(0.0, work - _per_op(ledger)) * cut
    if not worth_telling(ledger, max(expected, sorted_by_length)):
        return
    yield finding(
        "BRR409",
        ledger,
        low=0.4 * expected,
        expected=expected,
        ceiling=packed,
        message=f"{share(pad)} of the batch {'x'.join(map(str, worst.shape))} is padding{_rows(longest)}, and the "
        "model works on it as on the rest",
        advice="Pad to the longest of the batch. Put sequences of like length together, or pack several into one row."
        if cut > 0
        else "Put sequences of like length together, or pack several into one row.",
        where=_padded_at(ledger) or first_span(worst.span),
        evidence={"pad_share": ratio(pad), "model_time": time(work), "attention_time": time(attention)}
        | ({"longest": count(longest)} if longest is not None else {}),
        confidence="inferred",
        of=[op for op in ledger.ops if op.phase in MODEL],
    )


def _least_padded(inputs: list[InputFacts], worst: InputFacts) -> list[InputFacts]:
    """Of the inputs in that place that end in runs, those with the least padding: a column is padding where all have it
    (labels of a masked language model are mostly -100)."""
    by_value: dict[float | None, list[InputFacts]] = defaultdict(list)
    for given in inputs:
        ends_in_runs = given.pad_value is not None or given == worst
        if (given.shape, given.span) == (worst.shape, worst.span) and ends_in_runs:
            by_value[given.pad_value].append(given)
    return min(by_value.values(), key=lambda alike: mean(given.pad_share or 0.0 for given in alike))


def _longest(batches: list[InputFacts]) -> float | None:
    """Length of the longest row of a batch, over those that were looked at."""
    known = [batch.longest for batch in batches if batch.longest is not None]
    return mean(known) if known else None


def _rows(longest: float | None) -> str:
    return f", its longest row has {longest:.0f}" if longest is not None else ""


def _per_op(ledger: Ledger) -> float:
    """What shorter rows do not make shorter: Python between the model's ops, and torch's own cost for each."""
    between = sum(gap.ns for gap in ledger.host if gap.phase in MODEL)
    return between + sum(op.dispatch_ns for op in ledger.ops if op.phase in MODEL)


MODEL = ("forward", "loss", "backward")
PADDED = 0.10
"""diagnosis G17."""
LARGE = 0.25
"""Of the bytes of the largest input: the few tokens beside a picture are not what the model works on (proposed)."""
PADS = frozenset({"aten::constant_pad_nd", "aten::pad", "aten::pad_sequence", "aten::_pad_enum"})
LEFT = 0.15
"""Padding that sorting by length leaves (5 to 22 % measured); remedies are proposed from 15 % on."""


def _padded_at(ledger: Ledger) -> tuple[Span, ...]:
    """The line that pads, where an op of the loader tells it; else the user's collate function."""
    line = costliest_line(op for op in ledger.ops if op.name in PADS and op.phase in ("data", "other"))
    loader = main_loader(ledger)
    return line or first_span(loader.collate_span if loader else None)


def _is_attention(name: str, shapes: tuple[tuple[int, ...], ...], padded: InputFacts) -> bool:
    """Work that grows with the square of the length: fused attention, and ops on length x length."""
    length = padded.shape[1]
    return "scaled_dot_product" in name or any(len(s) >= 3 and s[-1] == s[-2] == length for s in shapes)
