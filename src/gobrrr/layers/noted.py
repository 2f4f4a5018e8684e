"""Tell how much each layer matters: the change of a model's outputs where that layer alone is made otherwise."""

from __future__ import annotations

import atexit
import contextlib
import copy
import importlib.util
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from gobrrr.layers.halved import between
from gobrrr.layers.values import tensors

MOST_TIMES = 100_000
"""Calls whose times are kept."""
WARM, PAIRS = 5, 40
"""Calls before the first that the plain model computes too, since a compiler or observers work in those; and how many
it computes at most."""


def sensitivity(
    model: nn.Module, change: Callable[[nn.Module], nn.Module], args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Return |y - y0| / |y0| for each layer that `change` makes otherwise: y0 the model's outputs for these arguments,
    y those with that layer alone as `change` makes it, both as one vector of all their floats.

    `change` is given a copy and gives the changed model; the model itself is as before afterwards. Layers are known by
    their names, and one at several places is changed at all of them under its first name; an nn.MultiheadAttention is
    one layer. What a layer gives is turned into the dtype that it gave before. Outputs without floats, or of zeros
    alone, give nothing: it is unknown.
    """
    given = dict(kwargs or {})
    changed = change(copy.deepcopy(model))
    found = {}
    with torch.no_grad():
        plain = _floats(model(*args, **given))
        whole = math.sqrt(sum(float(each.square().sum()) for each in plain))
        for name, before, after in _changed(model, changed) if whole else ():
            dtype = next((each.dtype for each in before.parameters()), torch.float32)
            between(after, next((each.dtype for each in after.parameters() if type(each.data) is Tensor), dtype), dtype)
            places = [(owner, key) for owner in model.modules() for key, part in owner._modules.items()
                      if part is before]  # fmt: skip
            try:
                for owner, key in places:
                    owner._modules[key] = after
                other = _floats(model(*args, **given))
            finally:
                for owner, key in places:
                    owner._modules[key] = before
            apart = sum(float((a - b).square().sum()) for a, b in zip(other, plain, strict=True))
            found[name] = math.sqrt(apart) / whole
    return found


def _changed(model: nn.Module, changed: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Module]]:
    """Innermost layers with weights that are others in the changed model, or whose place has something else there; an
    attention whole, since it reads the weights of its parts itself."""
    there = dict(changed.named_modules())
    inside = {part for each in model.modules() if isinstance(each, nn.MultiheadAttention) for part in each.children()}
    for name, before in model.named_modules():
        after = there.get(name)
        whole = isinstance(before, nn.MultiheadAttention)
        own = list(before.parameters(recurse=whole))
        if name and own and after is not None and before not in inside:
            others = list(after.parameters(recurse=whole))
            kinds = [[(type(each.data), each.dtype, each.shape) for each in side] for side in (own, others)]
            if type(after) is not type(before) or kinds[0] != kinds[1] or not all(map(torch.equal, own, others)):
                yield name, before, after


def _floats(value: Any) -> list[Tensor]:
    return [each.double() for each in tensors(value) if each.is_floating_point()]


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of the model's parameters and buffers, packed and quantised ones too; shared ones once."""
    seen: dict[tuple[str, int], int] = {}
    waiting = [*model.parameters(), *model.buffers(), *tree_leaves(model.state_dict())]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, Tensor):
            continue
        each = each.data
        if type(each) is not Tensor and hasattr(each, "__tensor_flatten__"):
            waiting += [getattr(each, name) for name in each.__tensor_flatten__()[0]]
        elif each.numel():
            storage = each.untyped_storage()
            seen[str(each.device), storage.data_ptr()] = storage.nbytes()
    return sum(seen.values())


def note_run(model: nn.Module, change: Callable[[nn.Module], nn.Module], file: str) -> nn.Module:
    """Return the model as `change` makes it. When the program ends, what it is and how long its calls took is written
    as JSON: bytes of its weights, layers of each kind, lower quartile of the calls in ns, ns until the end.

    The model as it was computes some of the calls too, unnoticed, where it can be copied and there is memory for two:
    each right before or behind the changed one's own, so that the median of their ratios ("times") is not that of two
    moments of a busy machine. Only arguments that nobody can write to by a call unseen are given twice: tensors and
    plain values, not caches. Raises TypeError for what is no torch.nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"not a torch.nn.Module: {type(model).__name__}")
    plain: nn.Module | None = None
    with contextlib.suppress(Exception):
        plain = copy.deepcopy(model)
    model = change(model)
    times: list[int] = []
    ratios: list[float] = []
    began, place = time.perf_counter_ns(), Path(file).resolve()
    start, given, before = 0, None, 0

    def begin(_: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal start, given, before
        is_paired = plain is not None and WARM <= len(times) < WARM + PAIRS and _is_plain((args, kwargs))
        given = (args, kwargs) if is_paired else None
        before = took(given) if given is not None and len(times) % 2 else 0
        start = time.perf_counter_ns()

    def end(*_: Any) -> None:
        ns = _since(start)
        if len(times) < MOST_TIMES:
            times.append(ns)
        if given is not None:
            ratios.append((before or took(given)) / ns)

    def took(given: tuple[Any, Any]) -> int:
        assert plain is not None
        start = time.perf_counter_ns()
        plain(*given[0], **given[1])
        return _since(start)

    def told() -> None:
        kinds = {kind: sum(isinstance(part, kinds) for part in model.modules()) for kind, kinds in _KINDS.items()}
        device = next((each.device.type for each in model.parameters()), "cpu")
        capability = torch.cuda.get_device_capability() if device == "cuda" else (0, 0)
        place.write_text(json.dumps({
            "bytes": weight_bytes(model), "ns": sorted(times)[len(times) // 4] if times else 0, "calls": len(times),
            "whole_ns": time.perf_counter_ns() - began, "layers": kinds, "device": device,
            "capability": 10 * capability[0] + capability[1], "times": median(ratios) if ratios else None,
            "torchao": importlib.util.find_spec("torchao") is not None,
        }), encoding="utf-8")  # fmt: skip

    model.register_forward_pre_hook(begin, prepend=True, with_kwargs=True)
    model.register_forward_hook(end)
    atexit.register(told)
    return model


def _since(start: int) -> int:
    """Return the ns since then, when what was started on a device has ended."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter_ns() - start


def _is_plain(value: Any) -> bool:
    """Whether it is of tensors and plain values alone."""
    if type(value) in (dict, list, tuple):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or type(value) in (Tensor, int, float, bool, str)


_KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "linear": (nn.Linear,), "convolution": (nn.Conv1d, nn.Conv2d, nn.Conv3d),
    "batch norm": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), "attention": (nn.MultiheadAttention,),
}  # fmt: skip


def note_sensitivity(model: nn.Module, change: Callable[[nn.Module], nn.Module], file: str) -> nn.Module:
    """Write `sensitivity` for the arguments of the model's first call as JSON, and end the program there."""
    place = Path(file).resolve()

    def noted(_: nn.Module, args: Any, kwargs: Any) -> None:
        hook.remove()
        found = sensitivity(model, change, args, kwargs).items()
        finite = {name: value if math.isfinite(value) else None for name, value in found}
        place.write_text(json.dumps(finite), encoding="utf-8")
        raise SystemExit(0)

    hook = model.register_forward_pre_hook(noted, with_kwargs=True)
    return model


def simulated_int8(model: nn.Module) -> nn.Module:
    """Round what linear layers and convolutions of `model` are given, and their weights, to 8 bits; in place.

    The numbers are about those of static_int8 (extremes of the inputs stand for their histogram), at no gain of time:
    to see how much a layer matters. Gives the model back.
    """
    from torch.ao.quantization import FakeQuantize, MinMaxObserver, PerChannelMinMaxObserver

    made: Any = FakeQuantize
    for part in model.modules():
        if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            rows = made(PerChannelMinMaxObserver, -127, 127, dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
            part.weight = nn.Parameter(rows(part.weight.detach()), requires_grad=False)
            part.register_forward_pre_hook(partial(_round_first, made(MinMaxObserver)))
    return model


def _round_first(rounded: nn.Module, _: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return rounded(given[0]), *given[1:]
