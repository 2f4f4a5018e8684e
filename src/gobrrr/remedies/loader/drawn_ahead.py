"""A loader's batches, each drawn and sent to the device when the one before it is handed out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gobrrr.capture.hooks.transform_guard import is_the_programs
from gobrrr.data.ahead import Lane
from gobrrr.remedies.loader.device_transfers import Held, Wanted, is_simple, tensors_of


@dataclass
class Drawn:
    """A batch, or the error that came instead, before the program has asked for it."""

    batch: Any = None
    error: Exception | None = None
    orders: int = 0
    """Orders for further batches, which the workers get when this one is handed out."""
    held: list[Held] = field(default_factory=list)
    lane: Lane | None = None


class Ahead:
    """Stands before an iterator's `_next_data`, for as long as batches are drawn ahead.

    Of what it holds nothing leads back to the iterator, whose workers end with its last reference.
    """

    def __init__(
        self, iterator: Any, batch: Any, lane: Callable[[torch.device], Lane], held: MutableMapping[int, Held],
        failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._iterator = weakref.ref(iterator)
        self._lane, self._held, self._failed = lane, held, failed
        self._wanted = Wanted()
        self._ready: list[Drawn] = []
        """Batches drawn ahead: one, and before it at most one that an interrupt has kept the program from getting."""
        self._over = False
        self._epoch = iterator._sampler_iter
        """Another object in each: a count of batches would not tell one whose first batch an interrupt kept back."""
        self._last = self._watched(batch)
        """Tensors of the batch that was handed out last, alive as long as the program may ask for them."""

    def __call__(self) -> Any:
        """The batch that the program is to get now."""
        iterator: Any = self._iterator()
        if iterator._sampler_iter is not self._epoch:
            self._ready.clear()  # of an epoch that was left early; the workers have begun anew
            self._epoch = iterator._sampler_iter
        self._last = []
        if self._ready:
            drawn = self._ready.pop(0)
            self._leave(iterator)
            batch, self._last = _handed_out(iterator, drawn), drawn.held
        else:
            batch = _plain(iterator)
            self._last = self._watched(batch)
        try:
            self._draw(iterator)
        except BaseException:  # the program's own, an interrupt: who goes on gets this batch
            self._ready.insert(0, Drawn(batch, held=self._last))
            raise
        return batch

    def end(self) -> None:
        """Draw no more; what was drawn comes first, as if it had not been."""
        self._over, self._last = True, []
        for drawn in self._ready:
            drawn.held, drawn.lane = [], None
        if (iterator := self._iterator()) is not None:
            self._leave(iterator)

    def _leave(self, iterator: Any) -> None:
        """Leave the iterator to itself where nothing is left to hand out, and no more comes."""
        if self._over and not self._ready and vars(iterator).get("_next_data") is self:
            del iterator._next_data

    def _draw(self, iterator: Any) -> None:
        if self._over or self._ready or self._wanted.device is None or not _is_there(iterator):
            return
        drawn = _drawn(iterator)
        self._ready.append(drawn)
        if drawn.error is None:
            drawn.held = self._watched(drawn.batch)
            drawn.lane = self._sent(drawn, self._wanted.device)

    def _watched(self, batch: Any) -> list[Held]:
        """Return the tensors of a batch that may be asked for."""
        found = []
        try:
            for place, tensor in enumerate(tensors_of(batch)):
                if is_simple(tensor):
                    self._held[id(tensor)] = held = Held(tensor, place, self._wanted)
                    found.append(held)
        except BaseException as error:  # of a container of the program's own
            self._failed(error)
        return found

    def _sent(self, drawn: Drawn, device: torch.device) -> Lane | None:
        """On which way those went that the program has asked for before; none does where it would be another tensor
        than the program makes."""
        going = [held for held in drawn.held if held.place in self._wanted.places]
        if not going or torch.is_inference_mode_enabled():
            return None
        try:
            lane = self._lane(device)
            tensors = [held.alive() for held in going]
            for held, tensor, there in zip(going, tensors, lane.send(tensors), strict=True):
                held.sent(there, lane, tensor)
        except BaseException as error:
            drawn.held = []
            self._failed(error)
            return None
        return lane


def _plain(iterator: Any) -> Any:
    return type(iterator)._next_data(iterator)


def _is_there(iterator: Any) -> bool:
    """Whether the next batch has come from its worker: nobody waits for it before its time, which may be until the
    program has done something with the batch before."""
    results, batches = iterator._data_queue, iterator._task_info
    while len(batches.get(iterator._rcvd_idx, ())) == 1 and not results.empty():
        index, batch = results.get()
        iterator._tasks_outstanding -= 1
        batches[index] += (batch,)  # as torch keeps those that come out of turn
    return len(batches.get(iterator._rcvd_idx, ())) == 2


def _drawn(iterator: Any) -> Drawn:
    """The next, while the workers' next order waits: else the sampler would draw, and they work, before their time."""
    orders: list[None] = []
    iterator._try_put_index = lambda: orders.append(None)
    try:
        batch, error = _plain(iterator), None
    except Exception as raised:
        if is_the_programs(raised):
            raise
        batch, error = None, raised.with_traceback(None)  # which would keep the iterator alive
    finally:
        del iterator._try_put_index
    return Drawn(batch, error, len(orders))


def _handed_out(iterator: Any, drawn: Drawn) -> Any:
    """Return the batch, with all that comes with it: the order for another, its error; the program may now write to its
    memory."""
    for _ in range(drawn.orders):
        iterator._try_put_index()
    if drawn.error is not None:
        raise drawn.error
    if drawn.lane is not None:
        drawn.lane.sent()
    return drawn.batch
