"""Batches of a training without the columns in which every row is padding."""

from __future__ import annotations

import copy
import itertools
import threading
import weakref
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gobrrr.capture.facts.lengths import WHOLE
from gobrrr.capture.facts.tensors import is_plain
from gobrrr.errors import GobrrrError
from gobrrr.remedies.loader.loader import of_the_model
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

MASK, IDS, LABELS, IGNORED = "attention_mask", "input_ids", "labels", -100
"""Names of tokenizers: the mask (1 where a token is), ids and labels; and the label that the loss leaves out
(cross_entropy's default)."""
PER_TOKEN = (MASK, LABELS, IDS, "token_type_ids", "position_ids", "special_tokens_mask")
DEEP = 2
"""Containers that a batch's tensors may lie in: (inputs, labels), inputs a mapping."""
PLAIN = (str, bytes, int, float, complex, type(None))
"""Values that are nothing per token."""
HELD = 8
"""Updates, two ago and before that, of whose first batch something is held, from which the program is taken to collect
them: who loads ahead, has several batches for an update, or makes a list of all before an epoch, is not."""
MULTIPLE = 8
"""Columns that are kept: few lengths for torch.compile, and those that matrix units like (pad_to_multiple_of)."""


class TrimPadding(Remedy):
    """Batches that a training draws of a DataLoader, with ids and their mask (rows x tokens, 0 or 1), by the names that
    tokenizers give them or, in tuples and under other names, by what they hold: the columns at the end in which every
    row has 0 are cut off, up to a multiple of 8. A batch with anything else per token, or with labels or different ids
    there, is left alone; so is what is evaluated, whose outputs a program may put together; one that collects batches
    of its training ends the remedy. The same tokens and labels; dropout draws other masks: it has fewer elements."""

    name = "trim_padding"
    title = "cuts each batch to its longest row instead of padding all to one length"
    safety = "order"
    judged_without_dropout = True
    place = "loader"
    serves = "training"
    late = True
    saves_memory = True
    unseen = (
        "batches are narrower: a training that ends after so many tokens, padding counted, takes more steps; a loss "
        "or a layer that begins to count padding later counts less of it; outputs of several batches may not fit "
        "together any more (torch.cat)"
    )
    by_hand = "tokenizer(...) without padding, and DataLoader(..., collate_fn=DataCollatorWithPadding(tokenizer))"

    def predicts(self, report: Report) -> Saving:
        """Return nothing where batches are as long as their longest row already, and only other batches would help."""
        found = of_the_model(super().predicts(report), report, self.codes, "saved_by_longest")
        return found if found.expected_ns > 0 else Saving()

    def apply(self, seams: Seams) -> None:
        def collects() -> None:
            said = f"{self.name}: the program collects batches, which have different lengths now"
            seams.give_up(GobrrrError(said, f"gobrrr tune --without {self.name}"))

        cut = Cutting(lambda detail: seams.applied(self.name, detail), collects)
        seams.at_model(cut.trains.meets)
        seams.at_step(cut.steps)
        seams.at_batch(cut)


class Cutting:
    """Cuts the batches that loaders of a training give; says the first time what it did, and calls `collects` where the
    program holds on to what was cut."""

    def __init__(self, told: Callable[[str], None], collects: Callable[[], None]) -> None:
        self.trains = Trains()
        self._told: Callable[[str], None] | None = told
        self._collects = collects
        self._num_steps = 0
        self._held: list[tuple[int, list[weakref.ref[Any]]]] = []

    def steps(self) -> None:
        """An optimizer is about to step."""
        self._num_steps += 1
        self.trains.steps()

    def __call__(self, iterator: Any, batch: Any) -> Any:
        if not self.trains.draws(iterator._index_sampler):
            return batch
        found = padded(batch)
        if found is None:
            return batch
        told, self._told = self._told, None
        if told is not None:
            told(f"{found.width} of {found.length} columns in the first batch that it cuts")
        self._held = [(step, refs) for step, refs in self._held if any(ref() is not None for ref in refs)]
        if sum(step + 2 <= self._num_steps for step, _ in self._held) >= HELD:
            self._collects()
            return batch
        cut = trimmed(batch, found)
        if not self._held or self._held[-1][0] != self._num_steps:
            parts = dict(_tensors(cut))
            self._held.append((self._num_steps, [weakref.ref(parts[place]) for place in found.places]))
        return cut


Place = tuple[Any, ...]
"""Keys and numbers that lead to a tensor of a batch."""


class Padded(NamedTuple):
    """A batch that can be cut: which of its tensors have an element for each token, how many they have, and columns
    that hold some."""

    places: tuple[Place, ...]
    length: int
    width: int


def padded(batch: Any) -> Padded | None:
    """Return what to cut; None where there is nothing, or nobody knows whether it may be."""
    tensors = dict(_tensors(batch))
    if any(tensor is None for tensor in tensors.values()):
        return None
    place = next((each for each in tensors if each[-1:] == (MASK,)), None)
    beside = place[:-1] if place is not None else None
    ids_place, place = ((*place[:-1], IDS), place) if place is not None else _by_content(tensors)
    mask, ids = tensors.get(place or ()), tensors.get(ids_place or ())
    if mask is None or ids is None or not (_is_table(mask) and _is_table(ids)) or ids.shape != mask.shape:
        return None
    used, length = (mask != 0).any(0).nonzero(), mask.shape[1]
    width = -(-(int(used[-1]) + 1) // MULTIPLE) * MULTIPLE if len(used) else length
    if width >= length or int(mask.max()) > 1 or bool((ids[:, width:] != ids[0, -1]).any()):
        return None
    per_token = [each for each, tensor in tensors.items() if tensor.shape[:2] == mask.shape]
    for each in per_token:
        named = beside is not None and each[:-1] == beside
        if each not in (place, ids_place) and not _says_nothing(each[-1], tensors[each], width, named):
            return None
    beyond = [each for each in tensors if each not in per_token and length in tensors[each].shape[1:]]
    return None if beside is None and beyond else Padded(tuple(per_token), length, width)


def trimmed(batch: Any, found: Padded, at: Place = ()) -> Any:
    """A batch of the same kind with so many columns, each tensor pinned where it was."""
    if at in found.places:
        part = batch[:, : found.width].contiguous()
        return part.pin_memory() if batch.is_pinned() else part
    keys = {place[len(at)] for place in found.places if place[: len(at)] == at}
    if not keys:
        return batch
    if isinstance(batch, tuple):
        items = [trimmed(each, found, (*at, number)) for number, each in enumerate(batch)]
        return batch._make(items) if hasattr(batch, "_make") else tuple(items)
    made: Any = copy.copy(batch)
    for key in keys:
        made[key] = trimmed(batch[key], found, (*at, key))
    return made


def _tensors(batch: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The tensors of a mapping, tuple or list, and of those in it; None in place of what may hold others per token, or
    could not be made again: nobody knows what its parts are."""
    import torch

    if isinstance(batch, torch.Tensor):
        yield at, batch if is_plain(batch) else None
    elif len(at) < DEEP and _is_made_again(batch):
        for key, value in batch.items() if isinstance(batch, Mapping) else enumerate(batch):
            yield from _tensors(value, (*at, key))
    elif not _is_plain_data(batch):
        yield at, None


def _is_made_again(batch: Any) -> bool:
    """Whether a copy of it with other items is all that it was: a class of the program's own may know more."""
    kind = type(batch)
    plain = kind in (dict, OrderedDict, defaultdict, list, tuple)
    named_tuple = kind.__bases__ == (tuple,) and hasattr(kind, "_make")
    return plain or named_tuple or isinstance(batch, UserDict) or kind.__module__.startswith("transformers.")


def _is_plain_data(value: Any) -> bool:
    """Texts and numbers, and containers of these: no array that could have a column per token."""
    if isinstance(value, (Mapping, list, tuple)):
        return all(map(_is_plain_data, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, PLAIN)


def _by_content(tensors: Mapping[Place, Any]) -> tuple[Place | None, Place | None]:
    """Find ids and their mask where nobody has named them so."""
    tables = {place: tensor for place, tensor in tensors.items() if _is_table(tensor) and tensor.numel()}
    for (ids_place, ids), (place, mask) in itertools.permutations(tables.items(), 2):
        if int(ids.max()) > 1 and int(ids.min()) >= 0 and is_mask_of(ids, mask):
            return ids_place, place
    return None, None


def is_mask_of(ids: Any, mask: Any) -> bool:
    """Whether a mask (not empty) is 0 exactly where ids of its shape have what their first row ends with, else 1."""
    alike = ids.shape == mask.shape and ids.device == mask.device
    return alike and bool((mask == (ids != ids.reshape(-1, ids.shape[-1])[0, -1])).all())


def _is_table(tensor: Any) -> bool:
    return tensor.dim() == 2 and str(tensor.dtype).removeprefix("torch.") in WHOLE


def _says_nothing(name: Any, tensor: Any, width: int, named: bool) -> bool:
    """Whether what is cut off something else per token counts nowhere: beside a mask of that name by its own name, else
    by what it holds: what no loss is computed from, or no segment (of 0 and 1)."""
    if named and name != LABELS:
        return name in PER_TOKEN
    if not _is_table(tensor):
        return False
    beyond = tensor[:, width:]
    if bool((beyond == IGNORED).all()):
        return True
    return name != LABELS and bool((beyond == 0).all()) and int(tensor.min()) >= 0 and int(tensor.max()) <= 1


class Surroundings(NamedTuple):
    """Surroundings in which a batch is drawn, or an optimizer steps."""

    thread: int
    modes: weakref.WeakKeyDictionary[Any, bool]
    """Whether the models that the program has called so far are in train() mode."""

    def are_like(self, others: Surroundings) -> bool:
        """Say whether thread and modes are the same, as far as both know a model: a first batch comes before the first
        call."""
        return self.thread == others.thread and all(others.modes.get(m, mode) == mode for m, mode in self.modes.items())


class Trains:
    """A loader trains once an optimizer has stepped after a batch of its own: drawn with gradients on, where the models
    were in the mode in which they are when it steps (Hugging Face evaluates in eval() mode and switches gradients off
    after the draw), and with no other loader drawn from since the step before, or nobody knows which one it was.

    A loader is known by its sampler, which its iterators of all epochs share."""

    def __init__(self) -> None:
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._drawn: weakref.WeakKeyDictionary[Any, Surroundings] = weakref.WeakKeyDictionary()
        self._trains: weakref.WeakKeyDictionary[Any, Surroundings] = weakref.WeakKeyDictionary()

    def meets(self, model: Any) -> None:
        """The program calls this module itself; a loss or a metric is in no mode that means anything."""
        if next(model.parameters(), None) is not None:
            self._models.add(model)

    def draws(self, sampler: Any) -> bool:
        """A batch was drawn now: whether it is one of a training."""
        import torch

        can_be_known = type(sampler).__weakrefoffset__ != 0 and type(sampler).__hash__ is not None  # no list of batches
        if not torch.is_grad_enabled() or not can_be_known:
            return False
        now = self._surroundings()
        self._drawn[sampler] = now
        known = self._trains.get(sampler)
        return known is not None and known.are_like(now)

    def steps(self) -> None:
        """An optimizer is about to step."""
        if not self._drawn:
            return
        drawn, now = list(self._drawn.items()), self._surroundings()
        self._drawn.clear()
        if len(drawn) == 1 and drawn[0][1].are_like(now):
            self._trains[drawn[0][0]] = now

    def _surroundings(self) -> Surroundings:
        modes = weakref.WeakKeyDictionary({model: bool(model.training) for model in self._models})
        return Surroundings(threading.get_ident(), modes)
