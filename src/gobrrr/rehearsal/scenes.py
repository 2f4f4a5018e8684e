"""Scenes: for each remedy, which ops of the ledger are timed as they are and as the remedy would run them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import zip_longest
from math import prod

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import OptimizerFacts
from gobrrr.rehearsal import autocast
from gobrrr.rehearsal.autocast import LOWERED
from gobrrr.rehearsal.callables import CONVOLUTIONS, DTYPES, KINDS, NORMS, PASSES
from gobrrr.rehearsal.op_parts import chosen, fresh, part, playable, trains, with_dtype
from gobrrr.rehearsal.script import Part, Scene, Side
from gobrrr.rules.bandwidth.updates import updating
from gobrrr.rules.compute.attention import LIBRARY, Scores
from gobrrr.rules.compute.random_numbers import chance_of_one, masks
from gobrrr.rules.compute.side_by_side import beside
from gobrrr.rules.model.shapes import (
    factors,
    float_dtype,
    has_dtype,
    holds,
    inside,
    num_elements,
    product_dims,
    total,
)
from gobrrr.rules.model.views import hot

TORCH_DTYPES = {name: torch for name, (torch, _) in DTYPES.items() if "float" in torch}
LARGE_VOCABULARY = 4096
"""Classes from which the remedy chunks a head, as in remedies.layers.layers."""
MIN_LENGTH = 32
"""Shorter attentions hold nothing that a fused kernel could spare."""
MASKS = ("aten::add", "aten::add_", "aten::masked_fill", "aten::masked_fill_", "aten::where")
CAUSAL = 0.2
"""Share of an attention's time that a kernel saves in addition where it is told that the mask is causal and skips half
of it."""
UNSURE = 0.3
"""Share of the time of ops whose format under autocast is not known that they may save at most: half of the bytes, less
some casts."""
FLATTENING = frozenset(f"aten::{name}" for name in ("view", "reshape", "flatten", "_reshape_alias", "_unsafe_view"))
Found = tuple[list[Part], float, float] | None
"""Parts, and what the remedy may spare and may cost outside of them, ns per step."""


def scene(remedy: str, ledger: Ledger, machine: Machine, seconds: float) -> Scene | None:
    """The scene of a remedy; None where none can be made of this recording."""
    found = MAKERS[remedy](ledger, machine) if remedy in MAKERS else None
    if found is None or not found[0]:
        return None
    parts, better, worse = found
    picked, left = chosen(parts)
    return Scene(remedy, picked, seconds, better, worse, ledger.scaled_by, left)


def _lowered(dtype: str, ledger: Ledger, machine: Machine) -> Found:
    parts, unsure = autocast.parts(ledger, dtype)
    return parts, UNSURE * unsure, 0.0


def _float32(ledger: Ledger, machine: Machine) -> Found:
    """Every op on doubles on floats, the update of the parameters too; casts between the two are spared."""
    ops = playable(ledger, lambda op: has_dtype(op, "double"))
    casts = [op for op in ops if op.name == "aten::copy_" and has_dtype(op, "float")]
    others = [op for op in ops if op not in casts]
    spared = [Part(part(op).today, None, op.calls, op.ns) for op in casts]
    played = [part(op, dtypes=with_dtype(op, "double", "float")) for op in others]
    return played + spared + _updates_in_float32(ledger), 0.0, 0.0


def _updates_in_float32(ledger: Ledger) -> list[Part]:
    """Return the updates of optimizers whose parameters take eight bytes each."""
    every = sum(o.num_elements for o in ledger.facts.optimizers) or 1
    double = [o for o in ledger.facts.optimizers if _complete(o) and o.param_bytes == 8 * o.num_elements]
    parts = []
    for each in double:
        made = _update(each, {}, ledger.phase("optimizer") * each.num_elements / every)
        today = {**(made.today or {}), "dtype": "double", "torch_dtype": "float64"}
        parts.append(Part(today, {**today, "dtype": "float", "torch_dtype": "float32"}, 1.0, made.ns))
    return parts


def _medium(ledger: Ledger, machine: Machine) -> Found:
    """Products, and the fused attention that is made of them: without AMX it is up to 26 times as slow."""
    ops = playable(ledger, lambda op: op.name in LOWERED and has_dtype(op, "float"))
    kernels = fresh(ledger, ops, {"dtype": "float", "precision": "medium"})
    return [part(op, precision="medium") for op in ops] + kernels, 0.0, 0.0


def _threads(ledger: Ledger, machine: Machine) -> Found:
    """Play all ops at as many threads as the process may use cores."""
    cores = machine.usable_cores
    if not cores or cores == ledger.threads:
        return None
    return [part(op, threads=cores) for op in playable(ledger)], 0.0, 0.0


def _channels_last(ledger: Ledger, machine: Machine) -> Found:
    """Convolutions, and what works on their images, with the channels last. What is flattened is copied into rows, and
    its gradient comes back in rows: a pooling's backward then copies its images too (18 of 56 ms of a small net)."""
    images = PASSES | NORMS | CONVOLUTIONS
    ops = playable(ledger, lambda op: op.name in images and any(len(shape) == 4 for shape in op.shapes))
    if not any(op.name in CONVOLUTIONS for op in ops):
        return None
    images_seen = {shape for op in ops for shape in op.shapes if len(shape) == 4}
    flattened: dict[tuple[int, ...], OpGroup] = {}
    for op in hot(ledger):
        shape = next(iter(op.shapes), ())
        if op.name in FLATTENING and op.phase not in ("backward", "data", "optimizer") and shape in images_seen:
            flattened[shape] = max(flattened.get(shape, op), op, key=lambda each: each.calls)
    parts = [part(op, strides=_last(op, flattened)) for op in ops]
    parts += [Part(None, _rows(shape, op.dtypes[0]), op.calls) for shape, op in flattened.items()]
    # Before these copies were played, 6, 23, 25 and 10 % were expected, and -1, 10, 1 and 8 came.
    return parts, 0.0, sum(each.ns for each in parts)


def _last(op: OpGroup, flattened: Collection[tuple[int, ...]]) -> list[list[int]]:
    """Strides of channels_last where a tensor has four dimensions, but for the gradient of what is flattened."""
    found = []
    for i, (shape, strides) in enumerate(zip_longest(op.shapes, op.strides[: len(op.shapes)], fillvalue=())):
        in_rows = i == 0 and op.phase == "backward" and shape in flattened
        found.append(_images(shape) if len(shape) == 4 and not in_rows else list(strides))
    return found


def _images(shape: Sequence[int]) -> list[int]:
    _, channels, height, width = shape
    return [channels * height * width, 1, channels * width, channels]


def _rows(shape: tuple[int, ...], dtype: str) -> Side:
    """The copy that flattening makes of images with the channels last."""
    return {
        "make": "op", "name": "aten::copy_", "shapes": [list(shape)] * 2 + [[]], "dtypes": [dtype, dtype, ""],
        "strides": [[], _images(shape), []], "concrete": ["", "", "False"],
    }  # fmt: skip


def _optimizer(fused: bool, ledger: Ledger, machine: Machine) -> Found:
    """Updates by the fused kernel, or over lists of tensors."""
    ill = [o for o in ledger.facts.optimizers if o.supports_fused and not o.fused and _complete(o)]
    every = sum(o.num_elements for o in ledger.facts.optimizers) or 1
    least, most = (spent / every for spent in updating(ledger))
    parts = [_update(o, {"fused": fused, "foreach": not fused}, least * o.num_elements) for o in ill]
    return [replace(p, most_ns=most * o.num_elements) for p, o in zip(parts, ill, strict=True)], 0.0, 0.0


def _complete(optimizer: OptimizerFacts) -> bool:
    return optimizer.kind in KINDS and sum(count for _, count in optimizer.shapes) == optimizer.num_tensors > 0


def _update(optimizer: OptimizerFacts, how: dict[str, bool], ns: float) -> Part:
    made = {
        "make": "optimizer", "kind": optimizer.kind, "options": dict(optimizer.options),
        "tensors": [[list(shape), count] for shape, count in optimizer.shapes],
    }  # fmt: skip
    today = {name: value for name in ("fused", "foreach") if (value := getattr(optimizer, name)) is not None}
    return Part({**made, "how": today}, {**made, "how": how}, 1.0, ns)


def _attention(ledger: Ledger, machine: Machine) -> Found:
    """Each attention by hand against torch's fused one; causal where a mask of its size was added, as it often is."""
    ops = [op for op in hot(ledger) if op.phase not in ("data", "optimizer") and not inside(op, *LIBRARY)]
    softmaxes: dict[tuple[int, ...], list[OpGroup]] = {}
    for op in ops:
        if op.name == "aten::_softmax" and op.phase != "backward" and op.shapes and len(op.shapes[0]) > 2:
            softmaxes.setdefault(op.shapes[0], []).append(op)
    found = [_fused(ops, shape, same, trains(ledger)) for shape, same in softmaxes.items()]
    parts = [each for each in found if each is not None]
    causal = sum(
        CAUSAL * p.ns for p in parts if p.today and p.today["mask"] and p.today["dims"][-2] == p.today["dims"][-3]
    )
    return parts, causal, 0.0


def _fused(ops: list[OpGroup], shape: tuple[int, ...], softmaxes: list[OpGroup], training: bool) -> Part | None:
    scores = Scores(shape[-2], shape[-1], prod(shape))
    products = [op for op in ops if scores.made_by(op) or scores.used_by(op)]
    passes = [op for op in ops if scores.touched_by(op)]
    size = next((pair[0][-1] for op in products if scores.made_by(op) and (pair := factors(op))), None)
    if size is None or min(shape[-2:]) < MIN_LENGTH:
        return None
    made = {
        "make": "attention", "dims": [*shape, size], "backward": training,
        "mask": any(op.name in MASKS for op in passes if op.phase != "backward"),
        "dropout": 0.1 if any("dropout" in op.name or "bernoulli" in op.name for op in passes) else 0.0,
    }  # fmt: skip
    heads = sorted((*shape[:-1], size))  # the products want them dense, and copy the heads' transposed views
    copies = [op for op in ops if op.name == "aten::copy_" and any(sorted(s) == heads for s in op.shapes)]
    ns = sum(op.ns for op in (*products, *passes, *copies))
    return _switched(made, "fused", softmaxes[0], sum(op.calls for op in softmaxes), ns)


def _switched(made: Side, switch: str, like: OpGroup, calls: float, ns: float) -> Part:
    """A part on tensors as an op's, without the switch today and with it then."""
    dtype = float_dtype(like) or "float"
    made = {**made, "dtype": dtype, "torch_dtype": TORCH_DTYPES[dtype]}
    return Part({**made, switch: False}, {**made, switch: True}, calls, ns)


def _loss(ledger: Ledger, machine: Machine) -> Found:
    """A large head with its cross-entropy, whole against chunked."""
    ops = [op for op in hot(ledger) if op.phase not in ("data", "optimizer")]
    parts = []
    for softmax in (op for op in ops if op.name == "aten::_log_softmax" and op.shapes and len(op.shapes[0]) == 2):
        rows, classes = softmax.shapes[0]
        there = [op for op in ops if holds(op, rows * classes)]
        inner = next((pair[0][-1] for op in there if op.phase != "backward" and (pair := factors(op))), None)
        if classes < LARGE_VOCABULARY or inner is None:
            continue
        made = {"make": "loss", "dims": [rows, inner, classes], "backward": trains(ledger)}
        parts.append(_switched(made, "chunked", softmax, softmax.calls, sum(op.ns for op in there)))
    return parts, 0.0, 0.0


def _masks(ledger: Ledger, machine: Machine) -> Found:
    drawn = [(op, {"make": "mask", "elements": num_elements(op), "keep": chance_of_one(op)}) for op in masks(ledger)]
    return [_switched(made, "packed", op, op.calls, op.ns) for op, made in drawn], 0.0, 0.0


def _together(ledger: Ledger, machine: Machine) -> Found:
    """Layers of one input by one product: what runs inside their calls, and backward where the program trains."""
    parts = []
    for each in beside(ledger):
        rows, inner, out = product_dims(each.products[0]) or (0, 0, 0)
        made = {"make": "together", "dims": [rows, inner, *[out] * each.layers], "backward": trains(ledger)}
        calls = sum(op.calls for op in each.products) / each.layers
        places = {op.where for op in each.products}
        behind = [op for op in hot(ledger) if op.phase == "backward" and op.where in places]
        parts.append(_switched(made, "joined", each.products[0], calls, total([*each.everything, *behind])))
    return parts, 0.0, 0.0


MAKERS: dict[str, Callable[[Ledger, Machine], Found]] = {
    "bf16_autocast": partial(_lowered, "c10::BFloat16"),
    "float16_autocast": partial(_lowered, "c10::Half"),
    "float32": _float32,
    "matmul_precision": _medium,
    "intraop_threads": _threads,
    "channels_last": _channels_last,
    "fused_optimizer": partial(_optimizer, True),
    "foreach_optimizer": partial(_optimizer, False),
    "sdpa_attention": _attention,
    "chunked_loss": _loss,
    "packed_masks": _masks,
    "products_together": _together,
}
"""Remedies that can be rehearsed."""
