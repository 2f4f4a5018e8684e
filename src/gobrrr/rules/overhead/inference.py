"""BRR313 and BRR314: inference that takes one sample per call, or reads a growing sequence from its beginning."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from gobrrr.ledger.model.ledger import Ledger, OpGroup, StepStats
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import ModuleFacts, Span
from gobrrr.rules.model.cores import first_span
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import factors
from gobrrr.rules.model.views import host_side
from gobrrr.units import duration, share

FEWEST_CALLS = 16
"""Steps from which on samples come in a row, so that they could come together."""
SPREAD, SPARE = 0.7, 0.3
"""Share of the cost per call (dispatch, Python, weights read) that a batch saves, and share of small ops' time above
their floors."""
FEW_ROWS = 64
"""Products of fewer run at a part of their rate: with a 768 x 3072 matrix of 1, 8 and 64 rows at 6, 65 and all
(measured, per cent)."""


@rule(
    "BRR313", "overhead", needs={"plain", "ops", "facts"}, remedies=("batched_prompts", "int8_draft", "prompt_lookup")
)
def one_sample_per_call(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A loop of forwards whose inputs hold one sample each: every call pays for its ops and reads all weights. What
    grows with the batch (activations, products of many rows) does not come back."""
    inputs = [given for given in ledger.facts.inputs if len(given.shape) >= 2]
    if ledger.step.kind != "inference" or ledger.step.count < FEWEST_CALLS or not inputs:
        return
    # One sample, also where the second dimension may be the batch.
    is_one = all(given.shape[0] == 1 and (given.shape[1] == 1 or not given.turned) for given in inputs)
    if not is_one or growing(ledger) is not None:
        return  # a text that is read anew for each token is BRR314's, and its time is not there twice
    ops = ledger.ops if ledger.device is None else ledger.device_ops
    # Time between ops, without what giving pages back takes: larger tensors have more of them.
    pages = (ledger.facts.minor_faults_per_step or 0.0) * machine.fresh_page.median if ledger.device is None else 0.0
    python = max(0.0, ledger.account("host") - pages)
    per_call = ledger.account("dispatch") + python + sum(op.floor_ns * _weights(op) for op in ops)
    above = sum(max(0.0, op.ns - op.floor_ns - op.dispatch_ns) for op in ops if _is_small(op, machine))
    expected = SPREAD * per_call + SPARE * above
    if not worth_telling(ledger, expected):
        return
    module = _largest_module(ledger)
    yield Cause(
        saving=(0.3 * per_call, expected, per_call + above),
        message=f"The model gets one sample per call ({'x'.join(map(str, inputs[0].shape))}): {duration(per_call)} "
        f"({share(per_call / ledger.wall)} of the step) is paid per call whatever is in it",
        advice="Hand over many at once: a batch, a list for a pipeline or an encoder, several prompts for generate().",
        where=first_span(module.span if module else inputs[0].span),
        evidence={"per_call": time(per_call), "above_the_floors": time(above), "steps": count(ledger.step.count)},
        remedies=None if ledger.decoding is not None else (),
        vain=("int8_draft",) if ledger.device is not None else (),
        confidence="inferred",
        both=True,
    )


def _largest_module(ledger: Ledger) -> ModuleFacts | None:
    """Return the module with most parameters that the program calls at a line that is known."""
    called = (module for module in ledger.facts.modules if module.calls_per_step and module.span)
    return max(called, key=lambda module: module.num_params, default=None)


def _weights(op: OpGroup) -> float:
    """Return the weights' share of the bytes of a product that is bound by them."""
    pair = factors(op)
    if op.bound != "bandwidth" or pair is None or len(pair[1]) != 2:
        return 0.0
    rows, (inner, columns) = pair[0][:-1], pair[1]
    return inner * columns / (inner * columns + prod(rows) * (inner + columns))


def _is_small(op: OpGroup, machine: Machine) -> bool:
    """A product of few rows, or an op that does less than calling it costs: a batch of them takes hardly longer."""
    if op.bound is None:
        return False
    pair = factors(op)
    if pair is not None and len(pair[1]) == 2:
        return prod(pair[0][:-1]) < FEW_ROWS
    return op.floor_ns < machine.dispatch.median * op.calls


EMBEDDING = "aten::embedding"
FEWEST_TOKENS = 3
"""Steps in a row whose inputs grow by one: two may be chance."""
SHORTEST = 8
"""Tokens from which on reading them again is told."""


class Growing(NamedTuple):
    """A sequence that grew in the recorded steps."""

    where: tuple[Span, ...]
    lengths: frozenset[int]
    rows: int
    """Sequences that grow side by side."""
    seen: bool
    """Say whether the model's input was seen to be the previous one and one more."""

    @property
    def sizes(self) -> frozenset[int]:
        """Dimensions by which an op is known to work on all tokens: linear layers have those of all rows as one."""
        return self.lengths | {self.rows * length for length in self.lengths}

    @property
    def length(self) -> float:
        """The mean of what was recorded."""
        return sum(self.lengths) / len(self.lengths)


@rule("BRR314", "compute", needs={"plain", "ops", "shapes"}, remedies=("key_value_cache",), on_device=True)
def decoding_without_cache(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Generation that hands the model all tokens so far in every step, and uses the last one's output."""
    grown = growing(host_side(ledger))
    if ledger.step.kind != "inference" or grown is None:
        return
    ops = [op for op in ledger.ops if any(set(shape) & grown.sizes for shape in op.shapes)]
    spent = sum(max(0.0, op.ns - op.dispatch_ns) for op in ops)
    again = spent * (1 - 1 / grown.length) + longer(ledger.step)
    if not worth_telling(ledger, 0.7 * again):
        return
    shortest, longest = min(grown.lengths), max(grown.lengths)
    module = _largest_module(ledger)
    yield Cause(
        saving=(0.2 * again if grown.seen else 0.0, 0.7 * again, again),
        message=f"Every step reads the whole text again, one token longer ({shortest} to {longest}): "
        f"{duration(again)} per step on average are tokens read before",
        advice="Keep keys and values of what was read (use_cache=True, past_key_values), and hand over the new token "
        "alone.",
        where=first_span(module.span if module else None) or grown.where,
        evidence={"read_again": time(again), "shortest": count(shortest), "longest": count(longest)},
        of=ops,
        confidence="derived" if grown.seen else "inferred",
    )


def longer(step: StepStats) -> float:
    """ns by which the mean step is longer than the median one because steps take longer and longer: of 15 ms at the 50
    tokens that were recorded and 18 on average over 204, keys and values saved 12. No more than the drift allows for:
    single slow steps do not count."""
    allowed = step.drift / 2 * step.plain_wall_ns if step.lengthens else 0.0
    return max(0.0, min(step.mean_ns - step.plain_wall_ns, allowed))


def growing(ledger: Ledger) -> Growing | None:
    """The indices of an embedding that are one longer each time that their length is another, and as often each; not
    where what the model was given was seen to begin otherwise each time."""
    places: dict[tuple[tuple[Span, ...], int], dict[int, float]] = defaultdict(dict)
    for op in sorted(ledger.named(EMBEDDING), key=lambda op: op.order):
        if len(op.shapes) > 1 and op.shapes[1]:
            *batch, length = op.shapes[1]
            lengths = places[op.where, prod(batch)]
            lengths[length] = lengths.get(length, 0.0) + op.calls
    extends = [given.extends for given in ledger.facts.inputs if given.extends is not None]
    if not all(extends):
        return None  # other texts each time, in the order of their lengths
    for (where, rows), lengths in places.items():
        # A window that begins within one text has the beginning of the next behind its end.
        begins = [b for a, b in itertools.pairwise(lengths) if b != a + 1]
        whole = begins == [] or (begins == [min(lengths)] and (extends or max(lengths) - min(lengths) < len(lengths)))
        found = Growing(where, frozenset(lengths), rows, bool(extends))
        even = max(lengths.values()) <= (2 if begins else 1.5) * min(lengths.values())
        if len(lengths) >= FEWEST_TOKENS and whole and even and found.length >= SHORTEST:
            return found
    return None
