"""Logits that are not computed until somebody needs them whole; their cross-entropy never does.

`LazyLogits` stands for hidden @ weight.T + bias. Slices and reshapes that leave the last dimension alone are done to
`hidden`; F.cross_entropy goes through them chunk by chunk, and so does F.nll_loss of their log_softmax; any other op
gets the real tensor, and so does everything that comes after it. A loss that went through chunks has no gradient for
them: torch.autograd.grad(loss, logits) is refused by torch. A step of an optimizer changes the weights of logits that
may be asked for later: those weights are copied before.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from gobrrr.errors import GobrrrError
from gobrrr.remedies.layers import chunks


class Head:
    """Tensors that the logits of one forward are computed from, as they were in that forward, and all logits that were
    made of them: as soon as one is asked for whole, all are computed, and from then on they are what torch makes."""

    def __init__(
        self, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, used: Callable[[], None],
        product_dtype: torch.dtype, elements: int,
    ) -> None:  # fmt: skip
        self.asks, self.num_classes = hidden.requires_grad or weight.requires_grad, weight.shape[0]
        self.used, self.product_dtype, self.elements = used, product_dtype, elements
        self.logits: list[weakref.ref[LazyLogits]] = []
        """In the order in which they were made: those that others are made of come first."""
        self._set(hidden, weight, bias)
        _HEADS.add(self)

    def _set(self, *given: torch.Tensor | None) -> None:
        self._given, self._marks = given, [_mark(each) for each in given]

    @property
    def is_as_it_was(self) -> bool:
        """Whether nobody has written to any of them."""
        return self._marks == [_mark(each) for each in self._given]

    def weights(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias. Raises GobrrrError where they, or the hidden states, have been changed and nobody kept
        them."""
        if not self.is_as_it_was:
            said = "logits are asked for that were not computed before their head was changed, by no optimizer's step"
            raise GobrrrError(said, "gobrrr tune --without chunked_loss")
        _, weight, bias = self._given
        assert weight is not None
        return weight, bias

    def keep(self) -> None:
        """Copies of the parameters among them, with their place in the graph: these are about to be changed."""
        if self.is_as_it_was:
            hidden, *own = self._given
            with torch.inference_mode(False), torch.enable_grad():
                self._set(hidden, *(each.clone() if isinstance(each, torch.nn.Parameter) else each for each in own))

    def compute(self) -> None:
        """All logits that are alive, with the graph that they would have: who asks first may want none, for a metric
        say."""
        with torch.inference_mode(False), torch.enable_grad():
            for each in [logits for ref in self.logits if (logits := ref()) is not None]:
                each.whole, each.made = each.product() if each.made is None else each.made[1](each.made[0].whole), None
        self.logits.clear()


_HEADS: weakref.WeakSet[Head] = weakref.WeakSet()
"""Heads of all logits that are alive."""


def keep_heads() -> None:
    """Keep what all logits are computed from, before an optimizer's step changes it."""
    for head in list(_HEADS):
        head.keep()


def _mark(tensor: Any) -> Any:
    """Equal to the one of before as long as nothing has changed, by torch's own count of writes: those through `.data`
    are not counted, nor are any to a tensor that was made under inference_mode()."""
    if tensor is None or tensor.is_inference():
        return id(tensor)
    return id(tensor), tensor._version, tensor.data_ptr()


class LazyLogits(torch.Tensor):
    """Looks like a tensor of shape (..., V). `used` is called when its cross-entropy was computed in chunks."""

    hidden: torch.Tensor
    head: Head
    normalised: bool
    """These are log-probabilities: the log_softmax of logits over their classes."""
    whole: Any
    """The tensor itself, once it is computed; None before."""
    made: tuple[LazyLogits, Callable[[Any], Any]] | None
    """What it was made of, and how."""

    @staticmethod
    def of(
        hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, used: Callable[[], None],
        dtype: torch.dtype | None = None, product_dtype: torch.dtype | None = None,
        elements: int = chunks.CHUNK_ELEMENTS,
    ) -> LazyLogits:  # fmt: skip
        """hidden (..., D), weight (V, D), bias (V) or None; `dtype` of the logits, `product_dtype` of the product;
        `elements` of a chunk."""
        product_dtype = product_dtype or hidden.dtype
        head = Head(hidden, weight, bias, used, product_dtype, elements)
        return LazyLogits._over(hidden, head, dtype or product_dtype)

    @staticmethod
    def _over(hidden: torch.Tensor, head: Head, dtype: torch.dtype, normalised: bool = False) -> LazyLogits:
        shape = (*hidden.shape[:-1], head.num_classes)
        made: Any = torch.Tensor._make_wrapper_subclass(LazyLogits, shape, dtype=dtype, device=hidden.device)
        made.hidden, made.head, made.normalised, made.whole, made.made = hidden, head, normalised, None, None
        head.logits.append(weakref.ref(made))
        found: LazyLogits = made
        return found

    def materialise(self) -> torch.Tensor:
        """The logits themselves, computed once, with all that were made of them or that they were made of."""
        if self.whole is None:
            self.head.compute()
        found: torch.Tensor = self.whole
        return found

    def looked_at(self) -> torch.Tensor:
        """Return the logits for one who only looks on: nothing is computed for the program before it asks."""
        if self.whole is not None:
            return self.materialise()
        with torch.inference_mode(False), torch.enable_grad():
            return self.product()

    def product(self) -> torch.Tensor:
        """Compute them."""
        weight, bias = self.head.weights()
        dtype = self.head.product_dtype
        product = F.linear(self.hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
        return _log_probabilities(product, self.dtype) if self.normalised else product.to(self.dtype)

    def with_hidden(self, hidden: torch.Tensor, dtype: torch.dtype | None = None) -> LazyLogits:
        """Return the same kind of logits for other rows."""
        return LazyLogits._over(hidden, self.head, dtype or self.dtype, self.normalised)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _METADATA:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        handler = _HANDLERS.get(func)
        if handler is not None and args and isinstance(args[0], LazyLogits) and args[0].whole is None:
            try:  # torch has other names for some arguments: reshape(shape=...), log_softmax(axis=-1)
                signature(handler).bind(*args, **kwargs)
            except TypeError:
                handler = None
            done = handler(*args, **kwargs) if handler is not None else None
            if isinstance(done, LazyLogits) and done is not args[0] and done.made is None:
                done.made = args[0], lambda whole: func(whole, *args[1:], **kwargs)
            if done is not None:
                return done
        with torch._C.DisableTorchFunctionSubclass():
            return func(*tree_map(_real, args), **tree_map(_real, kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*tree_map(_real, args), **tree_map(_real, kwargs or {}))


def _real(value: Any) -> Any:
    return value.materialise() if isinstance(value, LazyLogits) else value


def _reshaped(logits: LazyLogits, *shape: Any) -> LazyLogits | None:
    wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if not wanted or isinstance(wanted[0], torch.dtype) or wanted[-1] not in (logits.shape[-1], -1):
        return None
    rows = wanted[:-1]
    if wanted[-1] == -1 and (-1 in rows or math.prod(rows) * logits.shape[-1] != logits.numel()):
        return None
    return logits.with_hidden(logits.hidden.reshape(*rows, logits.hidden.shape[-1]))


def _flattened(logits: LazyLogits, start_dim: int = 0, end_dim: int = -1) -> LazyLogits | None:
    end = end_dim % logits.dim()
    return None if end == logits.dim() - 1 else logits.with_hidden(logits.hidden.flatten(start_dim, end))


def _indexed(logits: LazyLogits, index: Any) -> LazyLogits | None:
    """Plain slices and integers of the leading dimensions."""
    given = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(each, (slice, int)) or each is Ellipsis for each in given):
        return None
    if Ellipsis in given:
        at = given.index(Ellipsis)
        given = (*given[:at], *[slice(None)] * (logits.dim() - len(given) + 1), *given[at + 1 :])
    if len(given) == logits.dim():
        if given[-1] != slice(None):
            return None
        given = given[:-1]
    return logits.with_hidden(logits.hidden[given])


def _cast(logits: LazyLogits, *args: Any, **kwargs: Any) -> LazyLogits | None:
    to = args[0] if len(args) == 1 and not kwargs else kwargs.get("dtype") if not args and len(kwargs) == 1 else None
    if not isinstance(to, torch.dtype) or not to.is_floating_point or (logits.normalised and to != logits.dtype):
        return None
    return logits.with_hidden(logits.hidden, to)


def _log_softmax(logits: LazyLogits, dim: int | None = None, dtype: Any = None) -> LazyLogits | None:
    if logits.normalised or dtype is not None or dim not in (-1, logits.dim() - 1) or not torch.is_grad_enabled():
        return None
    wide = _dtype_of(lambda one: one.log_softmax(-1), logits)
    made = logits.with_hidden(logits.hidden, wide)
    made.normalised, made.made = True, (logits, lambda whole: _log_probabilities(whole, wide))
    return made


def _dtype_of(torchs: Callable[[torch.Tensor], torch.Tensor], logits: LazyLogits) -> torch.dtype:
    """Return the dtype that torch gives for such logits: autocast may widen it."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        return torchs(torch.zeros((1, 1), dtype=logits.dtype, device=logits.device)).dtype


def _log_probabilities(logits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return logits.to(dtype).log_softmax(-1)


def _loss(
    torchs: Callable[..., torch.Tensor], logits: LazyLogits, target: Any, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> torch.Tensor | None:  # fmt: skip
    """The cross-entropy, or the loss of log-probabilities, chunk by chunk; None where torch computes it otherwise."""
    if label_smoothing or (torchs is F.nll_loss and not logits.normalised):
        return None
    if not isinstance(target, torch.Tensor) or target.dtype != torch.int64 or logits.dim() != 2 or target.dim() != 1:
        return None
    if weight is not None or size_average is not None or reduce is not None:
        return None
    if reduction not in ("mean", "sum") or not logits.head.is_as_it_was or len(target) != len(logits):
        return None
    head = logits.head
    head.used()
    given = (logits.hidden, *head.weights(), target, ignore_index, reduction == "mean")
    with torch._C.DisableTorchFunctionSubclass():
        found = chunks.cross_entropy(*given, head.product_dtype, head.elements)
    return found.to(_dtype_of(lambda one: torchs(one, target.new_zeros(1)), logits))


_T: Any = torch.Tensor
_METADATA = frozenset(
    (_T.shape.__get__, _T.dtype.__get__, _T.device.__get__, _T.layout.__get__, _T.is_cuda.__get__, _T.ndim.__get__,
     _T.size, _T.dim, _T.numel, _T.is_floating_point, _T.is_complex, _T.__len__, torch.is_floating_point)
)  # fmt: skip
_HANDLERS: dict[Any, Callable[..., Any]] = {
    _T.view: _reshaped, _T.reshape: _reshaped, torch.reshape: _reshaped, _T.flatten: _flattened,
    torch.flatten: _flattened, _T.__getitem__: _indexed, _T.contiguous: lambda logits: logits,
    _T.float: lambda logits: _cast(logits, torch.float32), _T.to: _cast, _T.type: _cast,
    _T.requires_grad.__get__: lambda logits: logits.head.asks, F.cross_entropy: partial(_loss, F.cross_entropy),
    F.log_softmax: lambda logits, dim=None, _stacklevel=3, dtype=None: _log_softmax(logits, dim, dtype),
    torch.log_softmax: _log_softmax, _T.log_softmax: _log_softmax,
    F.nll_loss: partial(_loss, F.nll_loss),
}  # fmt: skip
