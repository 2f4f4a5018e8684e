"""How autocast would run the recorded ops: which of them in the lower format, and the casts between. Pure.

The recording says what ran in which order on which shapes, not which tensor went where. A tensor is taken for the last
one of as many elements; of two equal operands of a sum the other one is the older (the residual).
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

from msgspec.structs import replace

from gobrrr.ledger.model import Ledger, OpGroup
from gobrrr.rehearsal.makers import ATTENTION, CONVOLUTIONS, NORMS, PASSES, PRODUCTS
from gobrrr.rehearsal.parts import playable, side, trains, with_dtype
from gobrrr.rehearsal.script import Part
from gobrrr.rules.shapes import KEPT_WIDE, result_elements

LOWERED = PRODUCTS | CONVOLUTIONS | ATTENTION
WIDE = frozenset({"aten::_log_softmax", "aten::_log_softmax_backward_data"})
"""Losses stay in float32: what comes in the lower format is cast."""
WEIGHTS = {"aten::addmm": 2, "aten::mm": 1, "aten::mkldnn_convolution": 1, "aten::cudnn_convolution": 1}
"""Which input is a parameter: cast once per forward, however the other one comes."""
TENSORS = {"aten::mm": 2, "aten::mv": 2, "aten::bmm": 2, "aten::addmm": 3, "aten::baddbmm": 3}
"""What each takes; one more is what it writes to (out=), and such calls autocast leaves as they are."""
WIDE_INPUTS = {"aten::_scaled_dot_product_flash_attention_for_cpu_backward": 5}
"""An input that stays float32 in a lower format: the sums of exponentials that the forward kept."""
_SUFFIXES = ("_backward_data", "_backward")


def parts(ledger: Ledger, low: str) -> tuple[list[Part], float]:
    """All playable ops of the model under autocast to `low` with the casts, and the ns of those that stay as they are
    by our reading of the order, though their tensors may come in the lower format."""
    flow = _Flow(low, KEPT_WIDE if ledger.device is not None else WIDE)
    ops = [op for op in playable(ledger) if "float" in op.dtypes and not _is_given_its_output(op)]
    lowered = [op for op in ops if op.phase != "backward" and flow.forward(op)]
    lowered += [op for op in ops if op.phase == "backward" and flow.backward(op)]
    found = [Part(side(op), side(_run_in(op, low)), op.calls, op.ns) for op in lowered]
    same = {id(op) for op in lowered}
    unsure = sum(op.ns for op in ops if id(op) not in same and op.name in PASSES - flow.wide)
    return found + flow.cast_parts(trains(ledger)), unsure


def _run_in(op: OpGroup, low: str) -> OpGroup:
    run = replace(op, dtypes=tuple(_lowered(op, low)))
    return _by_torch(run) if low == "c10::BFloat16" and "cudnn_batch_norm" in op.name else run


def _by_torch(norm: OpGroup) -> OpGroup:
    """cuDNN refuses bfloat16 with weights in float32, and torch runs its own batch norm."""
    if norm.name == "aten::cudnn_batch_norm":
        return replace(norm, name="aten::native_batch_norm")
    order, inputs = (1, 0, 2, 3, 4, 5, 6), (norm.shapes, norm.dtypes, norm.strides)  # the gradient comes first
    shapes, dtypes, strides = (tuple(each[i] for i in order) for each in inputs)
    return replace(
        norm, name="aten::native_batch_norm_backward", shapes=(*shapes, (), (), ()), dtypes=(*dtypes, "", "", ""),
        strides=(*strides, (), (), ()), concrete=(*[""] * 7, "True", norm.concrete[7], "[True, True, True]"),
    )  # fmt: skip


def _lowered(op: OpGroup, low: str) -> list[str]:
    """Its dtypes in the lower format; weights and statistics of a norm stay in float32."""
    found, wide = with_dtype(op, "float", low), WIDE_INPUTS.get(op.name)
    if op.name in NORMS:
        return [new if len(shape) > 1 else old for shape, old, new in zip(op.shapes, op.dtypes, found, strict=True)]
    return found if wide is None else [*found[:wide], op.dtypes[wide], *found[wide + 1 :]]


def _is_given_its_output(op: OpGroup) -> bool:
    return op.name in TENSORS and sum(1 for shape in op.shapes if shape) > TENSORS[op.name]


class _Flow:
    """Formats of the tensors seen so far, by their number of elements."""

    def __init__(self, low: str, wide: frozenset[str]) -> None:
        self.low, self.wide = low, wide
        self._last: dict[int, str] = {}
        self._ever: dict[str, set[int]] = {low: set(), "float": set()}
        self._names: dict[tuple[str, int], str] = {}
        self._casts: defaultdict[tuple[int, str, str], float] = defaultdict(float)

    def forward(self, op: OpGroup) -> bool:
        """Whether it runs in the lower format; its result and its casts are noted."""
        elements = result_elements(op)
        if op.name in LOWERED:
            self._cast_inputs(op)
            found = self.low
        elif op.name in self.wide:
            if self._of(elements) == self.low:
                self._casts[elements, self.low, "float"] += op.calls
            found = "float"
        else:
            found = self._promoted(op)
        self._names[op.name, elements] = found
        self._note(elements, found)
        return found == self.low

    def backward(self, op: OpGroup) -> bool:
        """Gradients have the format of what the forward op of their kind had, or of all tensors of their size."""
        if op.name in LOWERED:
            return True
        if op.name in self.wide:
            return False
        elements = result_elements(op)
        base = op.name
        for suffix in _SUFFIXES:
            base = base.removesuffix(suffix)
        known = self._names.get((base, elements)) if base != op.name else None
        only_low = elements in self._ever[self.low] and elements not in self._ever["float"]
        return known == self.low if known else only_low

    def cast_parts(self, training: bool) -> list[Part]:
        """The casts of the forward, and of their gradients on the way back."""
        found = []
        for (elements, source, target), calls in self._casts.items():
            ways = [(source, target), (target, source)] if training else [(source, target)]
            for one, other in ways:
                made = {"make": "cast", "elements": elements, "source": one, "target": other}
                found.append(Part(None, made, calls))
        return found

    def _cast_inputs(self, op: OpGroup) -> None:
        weight = WEIGHTS.get(op.name)
        for i, (shape, dtype) in enumerate(zip(op.shapes, op.dtypes, strict=True)):
            if len(shape) < 2 or dtype != "float":
                continue
            if i == weight or self._of(prod(shape)) == "float":
                self._casts[prod(shape), "float", self.low] += op.calls
            if i != weight and self._of(prod(shape)) == "float":
                self._ever["float"].add(prod(shape))

    def _promoted(self, op: OpGroup) -> str:
        """An op on tensors of both formats gives float; parameters and masks, never seen before, are float."""
        sizes = [prod(s) for s, dtype in zip(op.shapes, op.dtypes, strict=True) if len(s) > 1 and dtype == "float"]
        if op.name not in PASSES or op.name == "aten::copy_":
            sizes = sizes[:1]
        formats = {self._of(size) for size in sizes}
        largest = max(sizes, default=0)
        if op.name in ("aten::add", "aten::add_") and sizes.count(largest) > 1 and largest in self._ever["float"]:
            formats.add("float")
        return self.low if formats == {self.low} else "float"

    def _of(self, elements: int) -> str:
        return self._last.get(elements, "float")

    def _note(self, elements: int, found: str) -> None:
        self._last[elements] = found
        self._ever[found].add(elements)
