"""BRR105: attention written out by hand, found by the shapes of its products and its softmax."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import msgspec

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import size, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import CEILINGS, FLOATS, MODEL, factors, float_dtype, inside, total
from gobrrr.units import duration

# Below this length a head's scores (64 KiB) fit a core's cache; at 512 the fused kernel gained 1.1 to 1.3x.
MIN_LENGTH = 128
# SDPA's CPU kernel, forward and backward, took 1.6 times what the hand-made products need at the fp32 ceiling: it
# computes the scores once more in backward. It is no faster in bf16 than in fp32.
FUSED_OVER_FLOOR = 1.6
# SDPA's own fallbacks materialise the scores too, but nobody wrote them by hand.
LIBRARY = (
    "aten::scaled_dot_product_attention",
    "aten::_native_multi_head_attention",
    "aten::_transformer_encoder_layer",
)
DRAWS = ("aten::bernoulli_", "aten::native_dropout")
"""Dropout on the scores. The CPU's fused kernel takes none: with it SDPA computes what is written by hand (torch's
check_for_dropout in sdp_utils_cpp; a GPT's step 313 to 414 ms by hand, 309 to 390 with SDPA, dropout 0.1)."""


class Scores(msgspec.Struct, frozen=True):
    """The attention matrix [..., queries, keys] of one softmax."""

    queries: int
    keys: int
    elements: int

    def is_matrix(self, shape: tuple[int, ...]) -> bool:
        """A tensor of the scores' size, or its transpose, with any layout of batch and heads before."""
        sides = {(self.queries, self.keys), (self.keys, self.queries)}
        return len(shape) >= 3 and shape[-2:] in sides and prod(shape) == self.elements

    def made_by(self, op: OpGroup) -> bool:
        """A product whose result is the scores."""
        pair = factors(op)
        return pair is not None and self.is_matrix((*pair[0][:-1], pair[1][-1]))

    def used_by(self, op: OpGroup) -> bool:
        """A product with the scores as a factor."""
        pair = factors(op)
        return pair is not None and any(self.is_matrix(shape) for shape in pair)

    def touched_by(self, op: OpGroup) -> bool:
        """Any other op over them: scale, mask, softmax, dropout, copies and their backward."""
        return factors(op) is None and any(self.is_matrix(shape) for shape in op.shapes)


@rule(
    "BRR105",
    "compute",
    needs={"ops", "shapes"},
    remedies=("sdpa_attention", "fused_attention", "compile", "compile_max_autotune"),
    on_device=True,
)
def hand_made_attention(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A softmax over [.., N, N] between two products: attention that writes its scores to memory several times."""
    ops = [op for op in ledger.ops if op.phase in MODEL and not inside(op, *LIBRARY)]
    softmaxes: dict[Scores, OpGroup] = {}
    for op in sorted(ops, key=lambda op: -op.ns):
        if op.name == "aten::_softmax" and op.phase != "backward" and (scores := _scores(op)):
            softmaxes.setdefault(scores, op)
    for scores, softmax in softmaxes.items():
        yield from _judge(ledger, machine, ops, scores, softmax)


def _scores(softmax: OpGroup) -> Scores | None:
    shape = softmax.shapes[0] if softmax.shapes else ()
    if len(shape) < 3 or min(shape[-2:]) < MIN_LENGTH:
        return None
    return Scores(shape[-2], shape[-1], prod(shape))


def _judge(ledger: Ledger, machine: Machine, ops: list[OpGroup], scores: Scores, softmax: OpGroup) -> Iterator[Cause]:
    products = [op for op in ops if scores.made_by(op) or scores.used_by(op)]
    passes = [op for op in ops if scores.touched_by(op)]
    forward = [op for op in products if op.phase != "backward"]
    if not any(map(scores.made_by, forward)) or not any(map(scores.used_by, forward)):
        return
    # On a CPU the fused kernel is no faster in bf16; on a device it takes the units of the scores' own format.
    dtype = CEILINGS.get(float_dtype(softmax) or "float", "fp32") if ledger.of_device else "fp32"
    rate = machine.flop_rate(dtype, ledger.threads)
    flops = sum(2.0 * op.calls * prod(pair[0]) * pair[1][-1] for op in products if (pair := factors(op)))
    floor = min(flops / rate * 1e9 if rate else 0.7 * total(products), total(products))
    spent = total(products) + total(passes)
    fused = max(0.85 * (spent - FUSED_OVER_FLOOR * floor), 0.5 * total(passes))
    if not worth_telling(ledger, fused):
        return
    drawn = not ledger.of_device and any(op.name in DRAWS and op.order > softmax.order for op in passes)
    expected = 0.0 if drawn else fused
    held = scores.elements * FLOATS.get(float_dtype(softmax) or "float", 4)
    calls = softmax.calls or 1.0
    yield Cause(
        saving=(0.35 * expected, expected, spent - 0.5 * floor),  # a causal kernel skips half of the products
        message=f"Attention written by hand takes {duration(spent)} per step, {duration(total(passes))} of it passes "
        f"over scores ({scores.queries} x {scores.keys}) that a fused kernel spares",
        advice="Use torch.nn.functional.scaled_dot_product_attention (is_causal=True where the mask is causal); "
        "torch.nn.MultiheadAttention calls it with need_weights=False."
        + (" Leave dropout out: the CPU's fused kernel takes none, and with it nothing is gained." if drawn else ""),
        where=softmax.where,
        evidence={
            "time_in_products": time(total(products)),
            "time_in_passes_over_scores": time(total(passes)),
            "floor_of_products": time(floor),
            "scores": size(held),
        },
        cost_bytes=round(held * calls * 2),
        vain=("sdpa_attention",) if drawn else (),
    )
