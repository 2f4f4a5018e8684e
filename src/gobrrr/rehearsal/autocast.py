"""Recorded ops as autocast would run them: which of them in the lower format, and the casts between. Pure.

The recording says what ran in which order on which shapes, not which tensor went where. A tensor is taken for the last
one of as many elements; of two equal operands of a sum the other one is the older (the residual).
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.rehearsal.callables import ATTENTION, CONVOLUTIONS, NORMS, PASSES, PRODUCTS
from gobrrr.rehearsal.op_parts import fresh, playable, side, trains, with_dtype
from gobrrr.rehearsal.script import Part
from gobrrr.rules.model.shapes import KEPT_WIDE, factors, inside, result_elements

LOWERED = PRODUCTS | CONVOLUTIONS | ATTENTION  # ops that autocast runs in the lower format
WIDE = frozenset({"aten::_log_softmax", "aten::_log_softmax_backward_data"})
"""Losses stay in float32: what comes in the lower format is cast."""
WEIGHTS = {"aten::addmm": 2, "aten::mm": 1, "aten::mkldnn_convolution": 1, "aten::cudnn_convolution": 1}
"""Position of the input that is a parameter: cast once per forward, however the other one comes."""
TENSORS = {"aten::mm": 2, "aten::mv": 2, "aten::bmm": 2, "aten::addmm": 3, "aten::baddbmm": 3}
"""Number of tensors that each takes; one more is the output (out=), and autocast leaves such calls as they are."""
WIDE_INPUTS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (5,),
    "aten::native_layer_norm_backward": (3, 4), "aten::native_group_norm_backward": (2, 3),
}  # fmt: skip
"""Inputs that stay float32 in a lower format: what the forward kept, sums of exponentials, and means and deviations
beside weights in float32."""
MATH = "aten::_scaled_dot_product_attention_math"
"""Op that SDPA calls where it has no kernel (dropout on a CPU): in float32, whatever it is given, unless
torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True) says otherwise."""
Dims = tuple[tuple[int, ...], frozenset[int]]


def parts(ledger: Ledger, low: str) -> tuple[list[Part], float]:
    """Return all playable ops of the model under autocast to `low` with the casts, and the ns of those that stay as
    they are by our reading of the order, though their tensors may come in the lower format."""
    flow = _Flow(low, KEPT_WIDE if ledger.device is not None else WIDE)
    ops = [op for op in playable(ledger) if "float" in op.dtypes]
    ops = [op for op in ops if sum(map(bool, op.shapes)) <= TENSORS.get(op.name, len(op.shapes))]
    lowered = [op for op in ops if op.phase != "backward" and flow.forward(op)]
    lowered += [op for op in ops if op.phase == "backward" and flow.backward(op)]
    found = [Part(side(op), side(_run_in(op, low)), op.calls, op.ns) for op in lowered]
    same = {id(op) for op in lowered}
    unknown = [op for op in ops if id(op) not in same and not inside(op, MATH)]
    unsure = sum(op.ns for op in unknown if op.name in PASSES - flow.wide)
    return found + flow.cast_parts(trains(ledger)) + fresh(ledger, lowered, {"dtype": low}), unsure


def _run_in(op: OpGroup, low: str) -> OpGroup:
    norm = replace(op, dtypes=tuple(_lowered(op, low)))
    if low != "c10::BFloat16" or "cudnn_batch_norm" not in op.name:
        return norm
    # cuDNN refuses bfloat16 with weights in float32, and torch runs its own batch norm.
    if norm.name == "aten::cudnn_batch_norm":
        return replace(norm, name="aten::native_batch_norm")
    order, inputs = (1, 0, 2, 3, 4, 5, 6), (norm.shapes, norm.dtypes, norm.strides)  # the gradient comes first
    shapes, dtypes, strides = (tuple(each[i] for i in order) for each in inputs)
    return replace(
        norm, name="aten::native_batch_norm_backward", shapes=(*shapes, (), (), ()), dtypes=(*dtypes, "", "", ""),
        strides=(*strides, (), (), ()), concrete=(*[""] * 7, "True", norm.concrete[7], "[True, True, True]"),
    )  # fmt: skip


def _lowered(op: OpGroup, low: str) -> list[str]:
    """Return an op's dtypes in the lower format; weights and statistics of a norm stay in float32."""
    wide = set(WIDE_INPUTS.get(op.name, ()))
    if op.name in NORMS:
        vectors = {i for i, shape in enumerate(op.shapes) if len(shape) == 1}
        wide = wide | vectors if vectors else set()  # without weights its statistics are lowered as well
    found = with_dtype(op, "float", low)
    return [old if i in wide else new for i, (old, new) in enumerate(zip(op.dtypes, found, strict=True))]


def _dims(op: OpGroup) -> Dims:
    """Batch and sizes of a product, the same for those that make its gradients; nothing for what is none."""
    pair = factors(op)
    return (pair[0][:-2], frozenset((*pair[0][-2:], pair[1][-1]))) if pair else ((), frozenset())


def _cast(elements: int, source: str, target: str, calls: float) -> Part:
    return Part(None, {"make": "cast", "elements": elements, "source": source, "target": target}, calls)


class _Flow:
    """Formats of the tensors seen so far, by their number of elements."""

    def __init__(self, low: str, wide: frozenset[str]) -> None:
        self.low, self.wide = low, wide
        self._last: dict[int, str] = {}
        self._ever: dict[str, set[int]] = {low: set(), "float": set()}
        self._names: dict[tuple[str, int], str] = {}
        self._casts: defaultdict[tuple[int, str, str], float] = defaultdict(float)
        self._dropped: defaultdict[tuple[int, str, str], float] = defaultdict(float)
        """Casts of what nobody uses, so that no gradient comes back."""
        self._products: dict[str, set[Dims]] = {low: set(), "float": set()}
        self._has_scores = False

    def forward(self, op: OpGroup) -> bool:
        """Whether it runs in the lower format; its result and its casts are noted."""
        elements = result_elements(op)
        if inside(op, MATH):
            found = self._in_math(op)
        elif op.name in LOWERED:
            self._cast_inputs(op)
            self._products[self.low].add(_dims(op))
            found = self.low
        elif op.name in self.wide:
            if self._of(elements) == self.low:
                self._casts[elements, self.low, "float"] += op.calls
            found = "float"
        else:
            found = self._promoted(op)
        self._names[op.name, elements] = found
        self._last[elements] = found
        self._ever[found].add(elements)
        return found == self.low and not inside(op, MATH)

    def _in_math(self, op: OpGroup) -> str:
        """The format of its result. Queries, keys and values become float before; after, what they give is lowered, and
        the weights too, which nobody uses."""
        self._has_scores |= op.name == "aten::_softmax"
        if (pair := factors(op)) is None:
            return "float"
        self._products["float"].add(_dims(op))
        left, right, elements = prod(pair[0]), prod(pair[1]), result_elements(op)
        if not self._has_scores:
            self._casts[left, self.low, "float"] += op.calls
            self._casts[right, self.low, "float"] += op.calls
            return "float"
        self._has_scores = False
        self._casts[right, self.low, "float"] += op.calls
        self._dropped[left, "float", self.low] += op.calls
        self._casts[elements, "float", self.low] += op.calls
        return self.low

    def backward(self, op: OpGroup) -> bool:
        """Gradients have the format of what the forward op of their kind had, or of all tensors of their size."""
        if op.name in LOWERED:
            return _dims(op) not in self._products["float"] - self._products[self.low]
        if op.name in self.wide:
            return False
        elements = result_elements(op)
        base = op.name.removesuffix("_backward_data").removesuffix("_backward")
        known = self._names.get((base, elements)) if base != op.name else None
        only_low = elements in self._ever[self.low] and elements not in self._ever["float"]
        return known == self.low if known else only_low

    def cast_parts(self, training: bool) -> list[Part]:
        """The casts of the forward, and of their gradients on the way back."""
        found = [_cast(*key, calls) for key, calls in (*self._casts.items(), *self._dropped.items())]
        if training:
            found += [_cast(n, target, source, calls) for (n, source, target), calls in self._casts.items()]
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
        """An op on tensors of both formats casts to float; parameters and masks, never seen before, are float."""
        sizes = [prod(s) for s, dtype in zip(op.shapes, op.dtypes, strict=True) if len(s) > 1 and dtype == "float"]
        if op.name not in PASSES or op.name == "aten::copy_":
            sizes = sizes[:1]
        formats = {self._of(size) for size in sizes}
        largest = max(sizes, default=0)
        if op.name in ("aten::add", "aten::add_") and sizes.count(largest) > 1 and largest in self._ever["float"]:
            formats.add("float")
        if formats == {self.low, "float"}:
            for size in {size for size in sizes if self._of(size) == self.low}:
                self._casts[size, self.low, "float"] += op.calls
        return self.low if formats == {self.low} else "float"

    def _of(self, elements: int) -> str:
        return self._last.get(elements, "float")
