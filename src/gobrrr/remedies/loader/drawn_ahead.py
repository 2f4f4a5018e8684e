"""A loader's batches, each drawn and sent to the device when the one before it is handed out."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from gobrrr.capture.hooks.lookup import plain
from gobrrr.capture.hooks.transform_guard import is_the_programs, is_transformed, sees_every_op
from gobrrr.data.ahead import Lane


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


class Wanted:
    """Requests made for a loader's batches: the device, and the places of their tensors, counted in their order."""

    def __init__(self) -> None:
        self.device: torch.device | None = None
        self.places: set[int] = set()

    def note(self, place: int, device: torch.device) -> None:
        """Note a place whose tensor is asked for; only the first device counts."""
        self.device = self.device or device
        if device == self.device:
            self.places.add(place)


class Held:
    """A tensor of a batch that the program has, or gets next; what there is of it on the device is given once, since
    who asks twice wants two."""

    def __init__(self, tensor: Tensor, place: int, wanted: Wanted) -> None:
        self.tensor = weakref.ref(tensor)
        self.place, self.wanted = place, wanted
        self._there: Tensor | None = None
        self._lane: Lane | None = None
        self._as_sent: tuple[Any, ...] = ()

    def alive(self) -> Tensor:
        """Return the tensor, which is alive while its batch is."""
        tensor = self.tensor()
        assert tensor is not None
        return tensor

    def sent(self, there: Tensor, lane: Lane, tensor: Tensor) -> None:
        """It is on its way."""
        self._there, self._lane, self._as_sent = there, lane, _state(tensor)

    def asked(self, tensor: Tensor, device: torch.device) -> Tensor | None:
        """The program wants it there, as it is: what was sent, if it is still the same."""
        self.wanted.note(self.place, device)
        there, self._there = self._there, None
        if there is None or self._lane is None or device != self.wanted.device or _state(tensor) != self._as_sent:
            return None
        received = self._lane.receive(there)
        assert isinstance(received, Tensor)
        return received


def _state(tensor: Tensor) -> tuple[Any, ...]:
    """Return values that differ once the tensor was changed: torch counts the writes to it."""
    return tensor._version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def is_simple(tensor: Tensor) -> bool:
    """Whether nothing but its numbers has to be on the device."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not (tensor.is_inference() or any(getattr(tensor, "names", ())))  # no versions; names go along
    )


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, lists and tuples, and in what keeps its items in a dict (Hugging Face's
    BatchEncoding): a mapping of the program's own may make its items when it is asked for them."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        for each in dict.values(batch):
            yield from tensors_of(each)
    elif isinstance(batch, list | tuple):
        for each in (list if isinstance(batch, list) else tuple).__iter__(batch):  # type: ignore[arg-type]
            yield from tensors_of(each)
    elif isinstance(batch, UserDict) and type(held := vars(batch).get("data")) is dict:
        yield from tensors_of(held)


DeviceOf = Callable[..., "torch.device | None"]


class Asked:
    """A method of tensors that moves them. The class has it as ever: subclasses and modes know torch's methods by what
    they are. Only on a tensor that is held another function is found."""

    def __init__(
        self, function: Any, device_of: DeviceOf, kind: str, held: Mapping[int, Held],
        told: Callable[[str], None], failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.function, self._device_of, self._kind, self._held = function, device_of, kind, held
        self._told, self._failed = told, failed

    def __get__(self, tensor: Tensor | None, owner: type | None = None) -> Any:
        if tensor is None:
            return plain(self.function)
        method = self.function.__get__(tensor, owner)
        held = self._held.get(id(tensor))
        if held is None or held.tensor() is not tensor or _is_watched(sys._getframe(1)):
            return method
        return functools.partial(self._call, held, tensor, method)

    def _call(self, held: Held, tensor: Tensor, method: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            there = self._from_ahead(held, tensor, args, kwargs)
        except BaseException as error:
            self._failed(error)
            there = None
        return method(*args, **kwargs) if there is None else there

    def _from_ahead(self, held: Held, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if not is_simple(tensor):
            return None
        device = self._device_of(tensor, *args, **kwargs)
        if device is None or device.type != self._kind:
            return None
        there = held.asked(tensor, whole(device))
        if there is not None:
            self._told(self._kind)
        return there


def _is_watched(asks: FrameType) -> bool:
    """Whether somebody wants to see the call itself, or makes another tensor of it. torch.compile looks at what the
    method is, on the very tensor that it traces with."""
    return bool(
        str(asks.f_globals.get("__name__")).startswith("torch._dynamo")
        or torch.compiler.is_compiling()
        or torch.is_inference_mode_enabled()
        or torch._C._len_torch_function_stack()
        or sees_every_op()
        or is_transformed()
    )


def whole(device: torch.device) -> torch.device:
    """Return the device with its index."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


def device_of_to(tensor: Tensor, *args: Any, **kwargs: Any) -> torch.device | None:
    """The device in arguments of `Tensor.to`, where nothing else is asked for and they are right."""
    if any(isinstance(each, Tensor) for each in (*args, *kwargs.values())):
        return None  # it may be of a class that has a say in it
    parse: Any = torch._C._nn._parse_to
    try:
        device, dtype, _, memory_format = parse(*args, **kwargs)
    except (RuntimeError, TypeError):
        return None
    only = dtype in (None, tensor.dtype) and memory_format in (None, torch.preserve_format)
    return device if only else None


def device_of_cuda(
    tensor: Tensor,
    device: Any = None,
    non_blocking: Any = False,
    memory_format: Any = torch.preserve_format,
    **more: Any,
) -> torch.device | None:
    """The same of `Tensor.cuda`."""
    if more or memory_format is not torch.preserve_format or type(device) not in (type(None), int, str, torch.device):
        return None
    try:
        return torch.device("cuda" if device is None else f"cuda:{device}" if type(device) is int else device)
    except RuntimeError:
        return None
