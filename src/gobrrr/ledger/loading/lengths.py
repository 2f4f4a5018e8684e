"""How many samples does a step hold, and how much of what the model works on is real?"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import OpGroup, Sequences, StepStats
from gobrrr.recording.model.facts import Facts, InputFacts, LengthFacts

LARGE = 0.25
"""Share of the bytes of the largest input: the model does not work on the few tokens beside a picture (proposed)."""
SHIFTED = 8
"""Columns by which what a model gets may be narrower than its batch: a decoder's inputs are without the last token."""
LOOKS_UP = {"aten::embedding": 1, "aten::_embedding_bag": 1, "aten::index_select": 2, "aten::one_hot": 0}
"""Ops that make vectors of token ids, and which of their inputs these are."""


def sequences(facts: Facts, step: StepStats, ops: Sequence[OpGroup] = ()) -> Sequences | None:
    """Sequences of the loader that serves the steps, if the model works on them; None where that is not known."""
    loader = facts.main_loader
    known = {each.loader: each for each in facts.lengths if each.fits}
    found = known.get(loader.id) if loader is not None else None
    if loader is None or found is None or not (given := reaching(facts, found)):
        return None
    rows, batches = found.rows / found.batches, found.batches
    if found.source != "mask" and not are_tokens(rows * (found.narrowest - SHIFTED), facts, ops):
        return None
    tokens = loader.per_step(step.count) * found.tokens / batches
    return Sequences(
        batches=batches, batch_size=max(1, round(rows)), widest=found.widest, lengths=found.lengths,
        real_share=found.tokens / found.cells, longest_share=found.tokens / found.to_longest, tokens_per_step=tokens,
        tokens_per_s=1e9 * tokens / step.average_ns if step.plain_wall_ns else None,
        several=found.several, masked=found.source == "mask", given=given[0],
    )  # fmt: skip


def are_tokens(num: float, facts: Facts, ops: Sequence[OpGroup]) -> bool:
    """Whether a step is seen to look so many of them up, or nobody could see it: of no ops, of compiled ones. Counts of
    words end in zeros too."""
    if not ops or facts.compile.used or any(module.compiled for module in facts.modules):
        return True
    lookups = ((op, LOOKS_UP[op.name]) for op in ops if op.name in LOOKS_UP)
    return sum(op.calls * prod(op.shapes[ids]) for op, ids in lookups if len(op.shapes) > ids) >= num


def reaching(facts: Facts, found: LengthFacts) -> list[InputFacts]:
    """The model's inputs that are as wide as those batches, none that is small beside a large one; with a row for each
    sequence. Where somebody cuts the batches before the model gets them there are none."""
    largest = max((given.num_bytes for given in facts.inputs), default=0)
    inputs = [replace(each, shape=(*each.shape[1::-1], *each.shape[2:])) if found.turned else each
              for each in facts.inputs]  # fmt: skip
    return [
        given
        for given in inputs
        if len(given.shape) >= 2
        and given.num_bytes >= LARGE * largest
        and found.narrowest - SHIFTED <= given.shape[1] <= found.widest
    ]


def samples_per_step(facts: Facts, step: StepStats, found: Sequences | None) -> float | None:
    """Rows of the batches that one step gets, by the loader that serves the steps; None where it does not say."""
    loader = facts.main_loader
    if loader is None or not step.count or not step.batches:
        return None
    size = loader.batch_size or (found.batch_size if found is not None else None)
    return float(size * loader.per_step(step.count)) if size else None


def steps_per_epoch(facts: Facts, samples: float | None) -> float | None:
    """Return the steps per epoch of that loader's data set, where it has a length and is read one sample at a time."""
    loader = facts.main_loader
    if loader is None or not samples or not loader.length or not loader.one_by_one:
        return None
    return loader.length / samples
