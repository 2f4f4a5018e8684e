"""Forward of transformers' trunks on packed rows, which `packing` puts in the place of their own."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gobrrr.data.packing.collate import block_mask
from gobrrr.data.packing.pack import pack

IDS, MASK, POSITIONS, TYPES = "input_ids", "attention_mask", "position_ids", "token_type_ids"
PLAIN = ("use_cache", "return_dict", "output_attentions", "output_hidden_states", "num_items_in_batch")
"""Arguments that have nothing for each token."""
ATTENTION = ("sdpa", "eager")
"""Implementations that take a mask of their own."""
WINDOWS = ("sliding_window", "attention_chunk_size", "local_attention", "window_size")
"""Names in a configuration for the reach of a token, which a mask of our own would lift."""
WORTH = 0.85
"""Most tokens of packed rows, padding counted, as a share of those of the padded batch."""
Tell = Callable[[str], None]


class Rows(NamedTuple):
    """Places where each token of the padded batch lies (`come`) and goes (`go`): indices into both, flattened."""

    shape: tuple[int, int]
    """Rows x tokens, packed."""
    come: Tensor
    go: Tensor
    documents: Tensor
    """Number of the sequence that each place of the packed rows belongs to, -1 for none."""


class Trunks:
    """Trunks that give the same on packed rows; each is tried with its first batch."""

    def __init__(self, told: Tell, declined: Tell) -> None:
        self.kinds: set[type] = set()
        self._told, self._declined = told, declined
        self._causal: weakref.WeakKeyDictionary[nn.Module, bool | None] = weakref.WeakKeyDictionary()
        """Whether a token sees later ones, of those that were tried; None of those that are left alone."""
        self._trying = False

    def packing(self, kind: type) -> Any:
        """Return the trunk's forward, for batches that it can pack."""
        self.kinds.add(kind)
        plain: Any = kind.forward  # type: ignore[attr-defined]
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def forward(trunk: Any, *args: Any, **kwargs: Any) -> Any:
            if self._trying or not trunk.training or not torch.is_grad_enabled() or torch.compiler.is_compiling():
                return plain(trunk, *args, **kwargs)
            given = dict(signature.bind(trunk, *args, **kwargs).arguments)
            given = {**given.pop("kwargs", {}), **given}
            given.pop(next(iter(signature.parameters)))
            rows = self._rows(trunk, given)
            causal = self._tried(trunk, plain, given, rows) if rows is not None else None
            if rows is None or causal is None:
                return plain(trunk, *args, **kwargs)
            return packed(trunk, plain, given, rows, causal)

        return forward

    def _rows(self, trunk: Any, given: dict[str, Any]) -> Rows | None:
        if self._causal.get(trunk, True) is None:
            return None
        if why := _unfit(trunk, given):
            return self._declined(why)
        rows = rows_of(given[MASK])
        if rows.shape[0] * rows.shape[1] > WORTH * given[MASK].numel():
            return self._declined("its batches are hardly padded")
        return rows

    def _tried(self, trunk: Any, plain: Any, given: dict[str, Any], rows: Rows) -> bool | None:
        """Whether it is causal, by its first batch; None where packed rows give something else."""
        if trunk in self._causal:
            return self._causal[trunk]
        self._causal[trunk], self._trying = None, True
        try:
            causal, why = tried(trunk, plain, given, rows)
        finally:
            self._trying = False
        self._causal[trunk] = causal
        if causal is None:
            self._declined(why)
        else:
            before, after = "x".join(map(str, given[MASK].shape)), "x".join(map(str, rows.shape))
            self._told(f"{type(trunk).__name__}: {before} in {after}, the first batch that it packs")
        return causal


def _unfit(trunk: Any, given: dict[str, Any]) -> str:
    """Say why a call is left as it is; empty where it can be packed."""
    attention = getattr(trunk.config, "_attn_implementation", None)
    mask, ids = given.get(MASK), given.get(IDS)
    if attention not in ATTENTION:
        return f"its attention ({attention}) takes no mask of its own"
    if not isinstance(ids, Tensor) or not isinstance(mask, Tensor) or mask.dim() != 2 or mask.shape != ids.shape:
        return "it is called without ids and a mask of rows x tokens"
    reach = [width for name in WINDOWS if isinstance(width := getattr(trunk.config, name, None), int)]
    if any(width < mask.shape[1] for width in reach):
        return "its tokens do not see all of a sequence"
    tokens = {name: value for name, value in given.items() if value is not None and name not in (IDS, MASK, *PLAIN)}
    if other := [
        n for n, v in tokens.items() if n not in (POSITIONS, TYPES) or getattr(v, "shape", None) != mask.shape
    ]:
        return f"it is called with {', '.join(sorted(other))}"
    if (
        given.get("output_attentions")
        or given.get("output_hidden_states")
        or getattr(trunk, "pooler", None) is not None
    ):
        return "it is asked for more than its last layer"
    first = (mask[:, 0] == 0).any() | ((mask[:, 1:] != 0) & (mask[:, :-1] == 0)).any()
    return "padding comes before a token, which may be predicted from there" if bool(first) else ""


def rows_of(mask: Tensor) -> Rows:
    """Rows as long as the longest sequence of a mask (rows x tokens), packed by best fit."""
    real = mask != 0
    lengths = real.sum(1).tolist()
    capacity, bins = max(lengths), [*pack(lengths, max(lengths))]
    order = [at for found in bins for at in found]
    sizes = torch.tensor([lengths[at] for at in order], device=mask.device)
    come = real.flatten().nonzero().flatten().split(lengths)  # type: ignore[no-untyped-call]
    begins = [
        row * capacity + sum(lengths[at] for at in found[:n])
        for row, found in enumerate(bins)
        for n in range(len(found))
    ]
    within = torch.cat([torch.arange(lengths[at], device=mask.device) for at in order])
    go = within + torch.tensor(begins, device=mask.device).repeat_interleave(sizes)
    documents = torch.full((len(bins), capacity), -1, device=mask.device)
    documents.view(-1)[go] = torch.tensor(order, device=mask.device).repeat_interleave(sizes)
    return Rows((len(bins), capacity), torch.cat([come[at] for at in order]), go, documents)


def packed(trunk: Any, plain: Any, given: dict[str, Any], rows: Rows, causal: bool) -> Any:
    """Return the trunk's output for a padded batch, computed on packed rows; zeros at padding."""
    shape, config = given[IDS].shape, trunk.config
    positions = given.get(POSITIONS)
    if positions is None:
        positions = torch.arange(shape[1], device=given[IDS].device).expand(shape)
    inside = {n: _moved(v, rows) for n, v in ((IDS, given[IDS]), (POSITIONS, positions), (TYPES, given.get(TYPES)))}
    mask: Tensor = block_mask(rows.documents, causal)
    if config._attn_implementation == "eager":  # which adds it
        mask = torch.zeros(mask.shape, dtype=trunk.dtype, device=mask.device).masked_fill_(
            ~mask, torch.finfo(trunk.dtype).min
        )
    said = {name: value for name, value in given.items() if name in PLAIN and value is not None}
    output = plain(
        trunk,
        **said
        | {n: v for n, v in inside.items() if v is not None}
        | {MASK: mask}
        | ({"use_cache": False} if _takes_cache(plain) else {}),
    )
    hidden = output[0]
    flat = hidden.reshape(-1, hidden.shape[-1])[rows.go]
    whole = flat.new_zeros(shape.numel(), hidden.shape[-1]).index_copy(0, rows.come, flat).view(*shape, -1)
    if isinstance(output, tuple):
        return (whole, *output[1:])
    output[0 if isinstance(output, list) else next(iter(output))] = whole
    return output


def _moved(values: Tensor | None, rows: Rows) -> Tensor | None:
    if values is None:
        return None
    found = values.new_zeros(rows.documents.numel())
    found[rows.go] = values.reshape(-1)[rows.come]
    return found.view(rows.shape)


def tried(trunk: Any, plain: Any, given: dict[str, Any], rows: Rows) -> tuple[bool | None, str]:
    """Whether it is causal: the mask that gives for this batch what the trunk gives is its own. Else None and why."""
    with _at_rest(trunk):
        true = plain(trunk, **given | ({"use_cache": False} if _takes_cache(plain) else {}))
        if sum(value is not None for value in (true.values() if hasattr(true, "values") else true)) != 1:
            return None, "it gives more than its last layer"
        try:
            for causal in (True, False):
                if _agree(true[0], packed(trunk, plain, given, rows, causal)[0], rows):
                    return causal, ""
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return None, f"it does not take packed rows ({type(error).__name__}: {error})"
    return None, "it computes a sequence otherwise beside others than alone"


def _takes_cache(plain: Any) -> bool:
    found = inspect.signature(plain).parameters
    return "use_cache" in found or "kwargs" in found


def _agree(true: Tensor, found: Tensor, rows: Rows) -> bool:
    """Say whether they agree at every token within the square root of the dtype's precision, as check_packable asks."""
    ours, theirs = (each.reshape(-1, each.shape[-1])[rows.come].float() for each in (true, found))
    return bool((ours - theirs).abs().max() <= torch.finfo(true.dtype).eps ** 0.5 * ours.abs().max())


@contextlib.contextmanager
def _at_rest(trunk: nn.Module) -> Iterator[None]:
    """Run without gradients and without dropout; nothing is drawn."""
    training = [module for module in trunk.modules() if module.training]
    device: Any = trunk.device  # a property of transformers' models
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            for module in training:
                module.training = False
            yield
    finally:
        for module in training:
            module.training = True
