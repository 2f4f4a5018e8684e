"""BRR409: batches that are mostly padding."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

from gobrrr.ledger.loading.lengths import LARGE, SHIFTED, are_tokens
from gobrrr.ledger.model.ledger import Ledger, Sequences
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import InputFacts
from gobrrr.rules.model.cores import first_span, made_at
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, rule
from gobrrr.rules.model.shapes import costliest_line, grouped
from gobrrr.rules.model.views import host_side
from gobrrr.rules.overhead.inference import growing
from gobrrr.units import share


class Padded(NamedTuple):
    """Padding of an input, and the share of the work on it that each way would leave out."""

    share: float
    told: str
    given: InputFacts
    longest: float
    """Share left out by padding to the longest of each batch."""
    together: float
    """Share left out by putting sequences of like length together."""
    sure: float
    """Part of the expected saving that is surely saved."""
    evidence: dict[str, Quantity]


@rule("BRR409", "data", needs={"plain", "facts"}, remedies=("trim_padding", "bucketing", "packing"), on_device=True)
def padding(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Sequences that are mostly padding, on which the model works as on the rest."""
    on_host = host_side(ledger)
    padded = _of_many(ledger.sequences) if ledger.sequences is not None else _of_three(on_host)
    if padded is None or padded.share <= PADDED or growing(on_host) is not None:
        return  # a text that grows by its own end may repeat one word: that is no padding
    pad, ways = padded.share, ledger.sequences.ways if ledger.sequences is not None else None
    work = sum(ledger.phase(phase) for phase in MODEL)
    attention = min(work, sum(op.ns for op in ledger.ops if _is_attention(op.name, op.shapes, padded.given)))
    packed = attention * (1 - (1 - pad) ** 2) + (work - attention) * pad
    less, loader = max(0.0, work - _per_op(ledger)), on_host.facts.main_loader
    longest, together = less * padded.longest, less * padded.together
    expected = longest if ways is None else max(longest, together)
    if not worth_telling(ledger, max(expected, work * padded.together)):
        return
    # No tuning need try what cannot help: nothing is cut or packed where no mask says what padding is, and then like
    # lengths together bring nothing where batches are as wide whatever they hold.
    vain: tuple[str, ...] = ()
    if ledger.sequences is not None and not ledger.sequences.masked:
        vain = ("trim_padding", "packing", *(["bucketing"] if padded.longest > LITTLE else []))
    yield Cause(
        saving=(padded.sure * (longest or expected), expected, packed),
        message=f"{share(pad)} of {padded.told}, which the model computes on",
        advice=_advice(padded, ledger.sequences, loader is not None and loader.stream),
        # The line that pads, where an op of the loader tells it; else what makes the batches.
        where=costliest_line(op for op in on_host.ops if op.name in PADS and op.phase in ("data", "other"))
        or (made_at(loader) if loader is not None else ())
        or first_span(padded.given.span),
        evidence={"pad_share": ratio(pad), "model_time": time(work), "attention_time": time(attention)}
        | {"saved_by_longest": time(longest), "saved_by_bucketing": time(together)}
        | padded.evidence,
        confidence="inferred",
        of=[op for op in ledger.ops if op.phase in MODEL],
        part=packed / work,
        vain=vain,
    )


def _of_many(found: Sequences) -> Padded | None:
    """From the lengths of many batches."""
    if found.given is None or (not found.masked and _are_alike(found)):
        return None
    ways, names = found.ways, ("pad_to_cap", "pad_in_collate", "bucketing", "packing", "packing_bound")
    reached = {} if ways is None else {name: ratio(getattr(ways, name)) for name in names}
    together = found.longest_share if ways is None else max(found.real_share, ways.bucketing)
    return Padded(
        1 - found.real_share,
        f"what {found.batches} batches of up to {found.batch_size}x{found.widest} hold"
        f"{' in the first sequence of each sample' if found.several else ''} is padding",
        found.given,
        longest=1 - found.real_share / found.longest_share,
        together=(SEVERAL if found.several else 1.0) * (1 - found.real_share / together),
        sure=0.8 if found.masked and (not found.several or found.longest_share > found.real_share) else 0.0,
        evidence={"batches": count(found.batches), **reached},
    )


def _are_alike(found: Sequences) -> bool:
    """Say whether nine of ten end at the same place: then the data are so, a picture's margin say. Padding is there
    because lengths differ."""
    lengths = sorted(found.lengths)
    so_far = [*itertools.accumulate(number for _, number in lengths)]
    if not so_far:
        return False
    shortest, longest = (lengths[bisect.bisect_left(so_far, share * so_far[-1])][0] for share in (0.05, 0.95))
    return longest - shortest <= ALIKE * longest


def _of_three(ledger: Ledger) -> Padded | None:
    """From what the model was given in the counting steps, where the lengths of the loader's batches are not known."""
    inputs = [given for given in ledger.facts.inputs if len(given.shape) >= 2]
    padded = [given for given in inputs if (given.pad_share or 0.0) > PADDED]
    if not padded or max(p.num_bytes for p in padded) < LARGE * max(given.num_bytes for given in inputs):
        return None
    worst = max(padded, key=lambda given: (given.num_bytes, given.pad_share or 0.0))
    if not are_tokens(worst.shape[0] * (worst.shape[1] - SHIFTED), ledger.facts, ledger.ops):
        return None
    alike = _least_padded(inputs, worst)
    pad, looked = mean(given.pad_share or 0.0 for given in alike), [g.longest for g in alike if g.longest is not None]
    longest = mean(looked) if looked else None
    together = (pad - LEFT) / (1 - LEFT)
    rows = f" (longest row {longest:.0f})" if longest is not None else ""
    return Padded(
        pad,
        f"the batch {'x'.join(map(str, worst.shape))} is padding{rows}",
        worst,
        longest=min(pad, 1 - longest / worst.shape[1]) if longest is not None else together,
        together=together,
        sure=0.0,
        evidence={"longest": count(longest)} if longest is not None else {},
    )


def _advice(padded: Padded, found: Sequences | None, stream: bool = False) -> str:
    """Advise what to do by hand, with the share of tokens in what is computed on then. Samples of a stream have no
    index that a sampler could name."""
    ways = found.ways if found is not None else None
    first = [_longest_row(found)] if padded.longest > LITTLE else []
    if stream:
        packs = "gobrrr.data.PackingDataset packs several of a stream into one row"
        return " ".join([*first, f"Sort a few thousand samples by length before they are batched, or {packs}."])
    if found is None or ways is None:
        return " ".join([*first, "Put sequences of like length together, or pack several into one row."])
    sums = " (of a sample's sequences together)" if found.several else ""
    now = "" if first else f" are tokens, {share(found.real_share)} now"
    sampler = f"Like lengths{sums} together, batch_sampler=BucketBatchSampler(lengths, {found.batch_size})"
    told = [*first, f"{sampler}: {share(ways.bucketing)}{now}."]
    if ways.nothing_to_gain:
        packs = f"Nothing to gain by packing: {share(ways.long_share)} of the sequences exceed half of {found.widest}."
        return " ".join([*told, packs])
    packs = f"PackedDataset(dataset, pack(lengths, {found.widest})) with collate_fn=PackingCollate({found.widest})"
    reached = f"{share(ways.packing)} (at most {share(ways.packing_bound)})"
    return " ".join([*told, f"Several packed into one row, {packs}: {reached}. All of gobrrr.data."])


def _longest_row(found: Sequences | None) -> str:
    """Advise to pad each batch to its longest row, with the share of tokens then and the condition for equal
    numbers."""
    unmasked = " (no attention_mask was found)" if found is not None and not found.masked else ""
    exact = f"exact where the model heeds a mask{unmasked} and no loss counts padding"
    tokens = ""
    if found is not None:
        tokens = f" Then {share(found.longest_share)} of what is computed on are tokens, {share(found.real_share)} now."
    return f"Pad each batch to its longest row, {exact}.{tokens}"


def _least_padded(inputs: list[InputFacts], worst: InputFacts) -> list[InputFacts]:
    """Return those inputs in that place that end in runs and have the least padding: a column is padding where all have
    it (labels of a masked language model are mostly -100)."""
    there = (given for given in inputs if (given.shape, given.span) == (worst.shape, worst.span))
    by_value = grouped((g for g in there if g.pad_value is not None or g == worst), lambda given: given.pad_value)
    return min(by_value.values(), key=lambda alike: mean(given.pad_share or 0.0 for given in alike))


def _per_op(ledger: Ledger) -> float:
    """Return the ns per step that shorter rows do not shorten: Python between the model's ops, and torch's own cost for
    each. Kernels are all work."""
    if ledger.of_device:
        return 0.0
    between = sum(gap.ns for gap in ledger.host if gap.phase in MODEL)
    return between + sum(op.dispatch_ns for op in ledger.ops if op.phase in MODEL)


MODEL = ("forward", "loss", "backward")
PADDED = 0.10
"""Share of padding from which it is looked at (proposed: what trim_padding gains at each share would settle it)."""
LITTLE = 0.03
"""Share of the columns that padding to the longest of the batch must leave out to be advised: less is no note."""
ALIKE = 0.05
"""Share of the longest length within which lengths count as alike (proposed)."""
SEVERAL = 0.5
"""Saving of like lengths where a sample has several sequences, as a share of the saving where it has one: pairs of
texts of independent lengths, sorted by their sums, left out 16 % of what the model works on, where sorting single texts
leaves out 34."""
PADS = frozenset({"aten::constant_pad_nd", "aten::pad", "aten::pad_sequence", "aten::_pad_enum"})
ATTENTION = re.compile("scaled_dot_product|_attention_(for|back)ward")
"""Fused, as torch names it, and inside of that whose kernels it takes."""
LEFT = 0.15
"""Padding that sorting by length leaves (5 to 22 % measured); remedies are proposed from 15 % on."""


def _is_attention(name: str, shapes: tuple[tuple[int, ...], ...], padded: InputFacts) -> bool:
    """Work that grows with the square of the length: fused attention, and ops on length x length."""
    length = padded.shape[1]
    return ATTENTION.search(name) is not None or any(len(s) >= 3 and s[-1] == s[-2] == length for s in shapes)
