"""How long the sequences are in the batches that loaders give: a histogram for each loader, over many batches.

A batch is looked at when the loader hands it out, before the program has it: it lies on the host then, and nothing
waits for a device. A look is followed by a pause of `PAUSE` times its length: looking takes about half a percent.
"""

from __future__ import annotations

from collections import Counter, UserDict
from collections.abc import Iterator, Mapping
from itertools import islice
from time import perf_counter_ns
from types import FrameType
from typing import Any

from gobrrr.capture.facts.tensors import MIN_PADDED_LENGTH, is_padding, is_plain, tensors_in, trailing_runs
from gobrrr.capture.hooks.transform_guard import is_tracing, unseen

PAUSE = 200  # durations of a look until the next; proposed: costs 0.5 % at most; overhead runs would settle it
MASK = "attention_mask"
TOKENS = ("int64", "int32", "int16")
"""Types of token ids: uint8 is a picture's."""
WHOLE = (*TOKENS, "int8", "uint8", "bool")
"""Types of masks: torch has no maximum of the wider unsigned ones."""
IDS = "input_ids"
MOST_ITEMS, MOST_KEYS = 32, 4096
"""Items of a container that are looked into, and keys of a mapping that are read, at most; proposed: bounds a look;
wider batches of real programs would settle it."""
MAX_LENGTHS = 8192
"""Different lengths after which no more is looked at: what has been seen is a large sample then;
proposed: bounds memory; programs with more would settle it."""

Key = tuple[Any, ...]


class Table:
    """Lengths seen in one loader's batches."""

    def __init__(self) -> None:
        self.unnamed: int | None = None
        """Position, among a batch's tables, of its mask, where no name says so."""
        self.forget()
        self.ids: tuple[int, float] | None = None
        """Position, among a batch's tensors of ids, of the one that shows the lengths, and the value by which it is
        padded."""
        self.masked = self.several = False
        """Whether batches said what a token is; and whether their samples have several sequences, each padded apart."""
        self.turned: bool | None = None
        """Whether its ids have a column for each sequence; null before they were seen."""
        self.due = 0

    def forget(self) -> None:
        """All that was counted."""
        self.lengths: Counter[int] = Counter()
        self.batches = self.rows = self.cells = self.to_longest = self.widest = 0
        self.narrowest: int | None = None

    def add(self, lengths: list[int], width: int) -> None:
        """Add a batch of rows of so many tokens padded to `width`; rows without any are computed on as well."""
        self.lengths.update(length for length in lengths if length)
        self.batches += 1
        self.rows += len(lengths)
        self.cells += len(lengths) * width
        self.to_longest += len(lengths) * max(lengths)
        self.widest = max(self.widest, width)
        self.narrowest = width if self.narrowest is None else min(self.narrowest, width)

    def facts(self) -> dict[str, Any]:
        """Return the table in the shape of recording.facts.LengthFacts."""
        as_they_are = ("batches", "rows", "cells", "to_longest", "widest", "several")
        return {name: getattr(self, name) for name in as_they_are} | {
            "lengths": sorted(self.lengths.items()),
            "narrowest": self.narrowest or 0,
            "source": "mask" if self.masked else "pad",
            "turned": bool(self.turned) and not self.masked,
        }


class Lengths:
    """Looks at batches, each loader's by the clock. What goes wrong ends the looking and nothing else."""

    def __init__(self) -> None:
        self.tables: dict[Key, Table] = {}
        self.error = ""

    def look(self, loader: Key, frame: FrameType | None, now: int) -> None:
        """The loader hands out a batch, in this frame of torch's."""
        table = self.tables.get(loader)
        if frame is None or self.error or (table is not None and now < table.due):
            return
        pause = PAUSE
        if table is None:
            table, pause = self.tables.setdefault(loader, Table()), 0  # a first look is long for what it has to load
        try:
            if not is_tracing():
                sampler = getattr(frame.f_locals.get("self"), "_index_sampler", None)
                size = getattr(sampler, "batch_size", None)
                with unseen():
                    _seen(table, frame.f_locals.get("data"), size if type(size) is int else 0)
        except Exception as error:
            self.error = repr(error)
        ended = perf_counter_ns()
        full = len(table.lengths) > MAX_LENGTHS
        table.due = 1 << 62 if full else ended + pause * (ended - now)


def _seen(table: Table, batch: Any, batch_size: int) -> None:
    """`batch_size`: 0 where the loader does not say."""
    masks = list(masks_in(batch))
    if not masks and (unnamed := _unnamed_mask(table, batch, batch_size)) is not None:
        masks = [unnamed]
        if not table.masked:  # labels that look padded may have been counted, or batches without padding not
            table.forget()
    if masks:
        mask, *others = masks
        if (found := mask_lengths(mask)) is not None and (table.masked or not table.batches):
            table.masked = True
            table.several |= any(_another(found, mask, mask_lengths(other), other) for other in others)
            table.add(found, mask.shape[1])
        return
    if table.masked:
        return
    tables = [_turned(each, batch_size) for each in tensors_in(batch) if _has_tokens(each)]
    ids, turned = [each for each, _ in tables if _is_table(each)], any(flag for _, flag in tables)
    if table.ids is None:
        table.ids, table.turned = _padded(ids), turned
    if table.ids is not None and table.ids[0] < len(ids) and table.turned is turned:
        place, value = table.ids
        if (lengths := run_lengths(ids[place], value)) is not None:
            others = [other for n, other in enumerate(ids) if n != place]
            table.several |= any(_another(lengths, ids[place], _padded_lengths(each, value), each) for each in others)
            table.add(lengths, ids[place].shape[1])


def _has_tokens(tensor: Any) -> bool:
    return is_plain(tensor) and tensor.dim() == 2 and str(tensor.dtype).removeprefix("torch.") in TOKENS


def _turned(ids: Any, batch_size: int) -> tuple[Any, bool]:
    """Ids with a row for each sequence, and whether they had a column for it, as recurrent nets are given them: only
    the loader's batch size tells the two apart."""
    if batch_size and ids.shape[1] == batch_size != ids.shape[0]:
        return ids.t(), True
    return ids, False


def masks_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the masks of mappings, and those of other ids beside them, two containers deep."""
    kind = type(value)
    if issubclass(kind, UserDict):
        value = object.__getattribute__(value, "__dict__").get("data")
        kind = type(value)
    if issubclass(kind, dict):
        masks = list(_masks_of(value))
        yield from masks
        for item in [] if masks or depth == 2 else islice(dict.values(value), MOST_ITEMS):
            yield from masks_in(item, depth + 1)
    elif depth < 2 and issubclass(kind, (list, tuple)):
        items = (list.__iter__ if issubclass(kind, list) else tuple.__iter__)(value)
        for item in islice(items, MOST_ITEMS):
            yield from masks_in(item, depth + 1)


def _masks_of(batch: Any) -> Iterator[Any]:
    """The mask; and masks that stand beside ids of the same name and shape (anchor_attention_mask, anchor_input_ids):
    one of global tokens, or the inverse of another, says nothing of padding."""
    mask = dict.get(batch, MASK)
    if mask is not None and not _is_table(mask):
        return
    if mask is not None:
        yield mask
    for key in islice(dict.keys(batch), MOST_KEYS):
        if type(key) is str and key != MASK and key.endswith(MASK):
            other: Any = dict.get(batch, key)
            ids: Any = dict.get(batch, key.removesuffix(MASK) + IDS)
            if _is_table(other) and _is_table(ids) and ids.shape == other.shape:
                yield other


def _unnamed_mask(table: Table, batch: Any, batch_size: int) -> Any:
    """The mask of a batch without names, a tuple say: zeros and ones, the zeros at one end of each row, just where ids
    of the batch are one value. Once known it is told by its place, without zeros too. None where there is none."""
    tables = [each for each in islice(tensors_in(batch), MOST_ITEMS) if _is_table(each)]
    if table.unnamed is not None:
        given = tables[table.unnamed] if table.unnamed < len(tables) else None
        return given if given is not None and mask_lengths(given) is not None else None
    ids = [each for each in tables if _has_tokens(each) and not _turned(each, batch_size)[1]]
    for place, each in enumerate(tables):
        # Two runs at most in each row: what a bag holds, or a picture shows, is scattered.
        is_mask = (int(each.min()), int(each.max())) == (0, 1) and int((each[:, 1:] != each[:, :-1]).sum(1).max()) <= 1
        if is_mask and any(_hides(each, other) for other in ids if other.shape == each.shape):
            table.unnamed = place
            return each
    return None


def _hides(mask: Any, ids: Any) -> bool:
    real = mask.bool()
    return int(ids.max()) > 1 and bool(((ids != ids[~real][0]) == real).all())


def _is_table(tensor: Any) -> bool:
    """Whole numbers, a row for each sequence, on the host: elsewhere a look would wait."""
    import torch

    return (
        issubclass(type(tensor), torch.Tensor)
        and tensor.dim() == 2
        and tensor.device.type == "cpu"
        and is_plain(tensor)
        and str(tensor.dtype).removeprefix("torch.") in WHOLE
        and tensor.shape[0] > 0
        and tensor.shape[1] >= MIN_PADDED_LENGTH
    )


def _another(lengths: list[int], table: Any, others: list[int] | None, other: Any) -> bool:
    """Whether `other` is another sequence of the samples, of lengths of its own. As wide and nowhere longer it is a
    part of the same: ids without the first, tags of which the last are zeros, a mask of global tokens."""
    if others is None or others == lengths:
        return False
    return bool(other.shape != table.shape or any(one > two for one, two in zip(others, lengths, strict=True)))


def mask_lengths(mask: Any) -> list[int] | None:
    """Tokens of each row, wherever the padding lies; None of what is no mask of 0 and 1."""
    if int(mask.max()) > 1 or int(mask.min()) < 0:
        return None
    found: list[int] = mask.sum(1).tolist()
    return found


def run_lengths(ids: Any, value: float) -> list[int] | None:
    """Tokens of each row before its trailing run of `value`; None of a mask."""
    runs = trailing_runs(ids, value)
    return None if runs is None else (ids.shape[1] - runs[0]).tolist()


def _padded_lengths(ids: Any, value: float) -> list[int] | None:
    """The same of ids that are padded by it: ones of a mask that nobody called so are no padding."""
    runs = trailing_runs(ids, value)
    return (ids.shape[1] - runs[0]).tolist() if runs is not None and is_padding(ids, *runs) else None


def _padded(ids: list[Any]) -> tuple[int, float] | None:
    """The place and the value of the ids of which half of the rows end in a run of that value: where several do, those
    with the least padding."""
    found: Mapping[tuple[int, float], int] = {
        (place, runs[1]): int(runs[0].sum())
        for place, each in enumerate(ids)
        if (runs := trailing_runs(each)) is not None and is_padding(each, *runs)
    }
    return min(found, key=lambda which: found[which], default=None)
