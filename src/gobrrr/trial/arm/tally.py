"""Count in a timed process what it does: cheap, and taken out of its clock."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import msgspec
import numpy as np

from gobrrr.capture.hooks import generation
from gobrrr.capture.hooks.lookup import Lookup, ModuleCall, Patches, plain
from gobrrr.capture.hooks.module_parts import is_bare, is_training, modules
from gobrrr.capture.hooks.transform_guard import in_backward, is_transformed, unseen
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.steps.device_memory import cuda_in_use
from gobrrr.guard.model.account import LEADING_WEIGHTS, MOST_TEXT, Account, Batch, Calls, Row, Weights, is_looked_at
from gobrrr.guard.watch import generated
from gobrrr.guard.watch.digest import dense, is_wrapper, look, raw, sampled
from gobrrr.guard.watch.effects import FileWrites
from gobrrr.trial.arm.meters import Samples

MOST_ELEMENTS = 1 << 18
"""Elements of all parameters that are looked at; proposed: some ms on one core; time of looks would settle it."""
COLUMNS, MOST_MODELS = 64, 16
"""Elements of each row that are summed, and models whose rows are told apart. Proposed: some 10 us a call; sums that
miss a change would settle it."""
_WEIGHTS = np.sin(np.arange(1, COLUMNS + 1))
DEPTH = 4  # of nests in a batch or a call; proposed: dicts of lists of tensors; batches that are nested deeper


class Tally(Samples):
    """Counts of one process since its start."""

    def __init__(self, recorder: Recorder, aside: Callable[[int], object], joined: bool = False) -> None:
        """`aside`: told of ns in the program's step that went into counting. `joined`: a sample counts once, whichever
        parts of one model it goes through by calls of their own."""
        super().__init__()
        from gobrrr.guard.watch.inputs import Computed

        self._recorder, self._aside = recorder, aside
        self._updates = self._batches = self._samples = self._lines = self._said = 0
        self._joined, self._computed = joined, Computed()
        self._models: dict[tuple[bool, int], list[float]] = {}
        """Calls, rows, elements and both sums of `given`, by mode and model."""
        self._places: dict[int, tuple[int, int]] = {}
        """For each model the first one called of those that are parts of one with it, and how many of them hold it."""
        self._fed: dict[int, tuple[int, Any, Callable[[], Any]]] = {}
        """Tensor that each model was given last: address, rows, and the tensor while it is there."""
        self._indices, self._content = (hashlib.blake2b(digest_size=8) for _ in range(2))
        self._made = [0.0, 0.0]
        self._rows_now = self._tokens = self._length = 0
        self._alive: int | None = None
        self._patches = Patches()
        self._inside = False
        self._writes = FileWrites()
        self._number, self._before = 0, (0, 0)
        self._later = Account()

    def install(self) -> None:
        """Before the recorder's hooks are put in place."""
        super().install()
        self._writes.start()
        counted: Any = self._counted(self._recorder.update_end)
        self._recorder.update_end = counted  # type: ignore[method-assign]
        self._module = ModuleCall(lambda method: Lookup(method, self._looked_up))
        self._called = self._call_of(plain(self._module.plain))
        generation.awaited(self._watch_generation, self._patches)
        if (out := sys.stdout) is not None:
            with contextlib.suppress(AttributeError):
                out.write = self._written(out.write)  # type: ignore[method-assign]

    def _written(self, write: Callable[[str], int]) -> Callable[[str], int]:
        def written(text: str) -> int:
            if type(text) is str:
                self._lines += text.count("\n")
                self._later.said += text[: max(0, MOST_TEXT - self._said)]
                self._said += len(text)
            return write(text)

        return written

    def _counted(self, update_end: Callable[[int], None]) -> Callable[[int], None]:
        def counted(number: int) -> None:
            self._updates += 1
            self._module.again()
            update_end(number)

        return counted

    # models

    def _looked_up(self, module: Any) -> Callable[..., Any] | None:
        """A model's call is looked up: by the program's own loop it goes through ours."""
        if self._inside or get_ident() != self._recorder.thread or in_backward() or is_transformed():
            return None
        return None if generation.is_aside(module) else self._called

    def _call_of(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._inside = True
            try:
                self._note(module, (args, kwargs))
                made = call(module, *args, **kwargs)
                if not is_training(module) or not self._updates:
                    self._look(made)
                self.called(module, args, kwargs)
                return made
            finally:
                self._inside = False

        return __call__

    def _look(self, made: Any) -> None:
        """Note what a model gives where nothing is learned from it."""
        began = perf_counter_ns()
        with contextlib.suppress(Exception), unseen():
            for leaf in _leaves(made):
                if hasattr(leaf, "layout") and leaf.device.type == "cpu" and not leaf.is_complex():
                    self._sum(leaf, self._made)
            if self._joined:
                self._computed.add(leaf for leaf in _leaves(made) if hasattr(leaf, "layout"))
        self._aside(perf_counter_ns() - began)

    def _note(self, module: Any, given: Any) -> None:
        with contextlib.suppress(Exception):  # the program's own parameters(), perhaps
            if is_bare(module):  # a loss, a transform: an edit may call a function in its place
                return
        began = perf_counter_ns()
        tensors: list[Any] = []
        with contextlib.suppress(Exception):
            tensors = [leaf for leaf in _leaves(given) if hasattr(leaf, "layout")]
        calls = self._counts(module)
        with contextlib.suppress(Exception):
            if self._joined and tensors and self._is_further(module, tensors[0]):
                return
        calls[0] += 1
        with contextlib.suppress(Exception):
            if tensors:
                self._rows_now = (tensors[0].shape[0] if tensors[0].shape else 1) if tensors[0].numel() else 0
                calls[1] += self._rows_now
                calls[2] += sum([tensor.numel() for tensor in tensors])
            if not (self._batches and self._updates):
                with unseen():
                    for tensor in tensors:
                        if tensor.device.type == "cpu" and not tensor.requires_grad and not tensor.is_complex():
                            self._sum(tensor, calls)
        self._aside(perf_counter_ns() - began)

    def _counts(self, module: Any) -> list[float]:
        """Return the counts of a model in its mode; of many models the later ones share theirs."""
        key = is_training(module), id(module)
        if key not in self._models:
            if len(self._models) >= MOST_MODELS:
                key = is_training(module), 0
            elif self._joined and key[1] not in self._places:
                self._places = _places([*self._places, key[1]])
        return self._models.setdefault(key, [0, 0, 0, 0.0, 0.0])

    def _is_further(self, module: Any, tensor: Any) -> bool:
        """Whether a model made this, or another part of the same model was given it just now. A model that is the only
        one refines what it made: each round is work of its own."""
        if len(self._places) > 1 and (tensor.grad_fn is not None or self._computed.holds(tensor)):
            return True
        now = tensor.data_ptr(), tensor.shape[:1]
        here = self._places.get(id(module), (0, 0))[0]
        others = [fed for number, fed in self._fed.items() if number != id(module) and self._places[number][0] == here]
        self._fed[id(module)] = *now, weakref.ref(tensor)
        return any((address, rows) == now and there() is not None for address, rows, there in others)

    def _told(self) -> dict[tuple[bool, int], list[float]]:
        """Counts by mode and model: where a model is called whole and by its parts, both; of parts beside each other
        those of the one that was given most."""
        most: dict[tuple[bool, int, int], list[float]] = {}
        for (training, number), counts in self._models.items():
            key = training, *self._places.get(number, (number, 0))
            most[key] = max(most.get(key, counts), counts, key=lambda each: each[1])
        found: dict[tuple[bool, int], list[float]] = {}
        for (training, number, _), counts in most.items():
            known = found.get((training, number), [0] * len(counts))
            found[training, number] = [a + b for a, b in zip(known, counts, strict=True)]
        return found

    def _rows(self) -> int:
        return int(sum(counts[1] for counts in self._told().values()))

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """A model was called by the program itself."""

    def _sum(self, tensor: Any, into: list[float]) -> None:
        """Add some elements of each row to the last two; what has no rows is one."""
        rows = self._rows_now if tensor.dim() and tensor.shape[0] == self._rows_now else 1
        if is_wrapper(tensor) or not tensor.numel():
            return
        flat = tensor.detach().reshape(rows, -1)
        values = np.from_dlpack(flat[:, :: -(-flat.shape[1] // COLUMNS)].double())
        into[-2] += float((values @ _WEIGHTS[: values.shape[1]]).sum())
        into[-1] += float(np.abs(values).sum())

    # generate() of transformers

    def _watch_generation(self) -> None:
        """Count its sequences as they are over, and real tokens as they come: a block is timed by these."""
        if (call := generation.original()) is None:
            return

        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            self._length, self._alive, self._inside = 0, None, True
            try:
                result = call(model, *args, **kwargs)
            finally:
                self._inside = False
            self._generated(model, args, kwargs, result, begin())
            return result

        def begins(_: Any) -> Callable[..., Any] | None:
            trains = self._updates or in_backward()
            return None if trains or self._inside or get_ident() != self._recorder.thread else generate

        begin = generation.watch_generation(begins, self._goes_on, self._patches)

    def _goes_on(self, ids: Any, unfinished: Any) -> None:
        began = perf_counter_ns()
        new = ids.shape[1] - self._length if self._length else 0
        self._tokens += new * (len(ids) if self._alive is None else self._alive)
        self._length = ids.shape[1]
        self._alive = int(unfinished.sum()) if unfinished is not None else None
        self._aside(perf_counter_ns() - began)

    def _generated(self, model: Any, args: Any, kwargs: Any, result: Any, begin: int | None) -> None:
        began = perf_counter_ns()
        counts = self._counts(model)
        with contextlib.suppress(Exception), unseen():
            for given, tokens in generated.rows(model, args, kwargs, result, begin):
                counts[:3] = counts[0] + 1, counts[1] + 1, counts[2] + sum(t.numel() for t in given)
                self._rows_now = 1
                for into, tensors in ((counts, given), (self._made, [tokens])):
                    for each in tensors:
                        self._sum(each.cpu()[None], into)
        self._aside(perf_counter_ns() - began)

    # loaders

    def given(self, index: Any, batch: Any) -> None:
        """A loader hands out a batch, of this index or these."""
        began = perf_counter_ns()
        self._batches += 1
        self._samples += len(index) if isinstance(index, (list, tuple)) else 1
        self._indices.update(repr(index).encode())
        with contextlib.suppress(Exception), unseen():
            for leaf in _leaves(batch):
                self._content.update(_bytes(leaf))
        if is_looked_at(self._batches):
            self._later.batches.append(Batch(self._batches, self._indices.hexdigest(), self._content.hexdigest()))
        self._aside(perf_counter_ns() - began)

    # the account

    def step_ended(self) -> None:
        """A step of the measured loop has ended; look, where this one is looked at."""
        self._number += 1
        if not is_looked_at(self._number):
            return
        weighs = is_looked_at(self._number, LEADING_WEIGHTS)
        if weighs and (cuda := cuda_in_use()) is not None:
            cuda.synchronize()
        began = perf_counter_ns()
        self._later.rows.append(self._row())
        with contextlib.suppress(Exception):
            if self._later.seed is None:
                self._later.seed = _seed()
            if weighs and (found := self._weights()) is not None:
                self._later.weights.append(found)
        self._aside(perf_counter_ns() - began)

    def block_begins(self) -> None:
        """Count rows from here on."""
        self._before = self._tokens, self._rows()

    def block_rows(self) -> int:
        """Return the tokens that models generated in the block, or where they did not the rows that they were given; 0
        where the program learns."""
        tokens, rows = self._before
        return 0 if self._updates else self._tokens - tokens or self._rows() - rows

    def taken(self, over: bool = False) -> dict[str, Any]:
        """Return what was noted since it was last taken, for a message. `over`: the program comes to its end."""
        found, self._later = self._later, Account(seed=self._later.seed)
        if over:
            found.ended = self._number
            found.rows.append(self._row())
        told: dict[str, Any] = msgspec.to_builtins(found)
        return told

    def _row(self) -> Row:
        told = self._told()
        trained, evaluated = (
            Calls(*(int(sum(counts[at] for (mode, _), counts in told.items() if mode == training)) for at in range(3)))
            for training in (True, False)
        )
        first, second = (sum(counts[at] for counts in told.values()) for at in (3, 4))
        return Row(self._number, self._updates, self._batches, self._samples, trained, evaluated,
                   len(self._writes.names) + len(self._writes.saved), self._lines, (first, second),
                   self._writes.written(), (self._made[0], self._made[1]),
                   () if self._updates else tuple(int(counts[1]) for counts in told.values()))  # fmt: skip

    def _weights(self) -> Weights | None:
        """Look at parameters by shape: an edit may put them into other groups."""
        import torch

        held = {id(p): p for _, optimizer in self._recorder.optimizers.alive() for group in optimizer.param_groups
                for p in group["params"]}  # fmt: skip
        found = sorted(held.values(), key=lambda p: tuple(p.shape))
        if not found:
            return None
        every = -(-sum(p.numel() for p in found) // MOST_ELEMENTS)
        with torch.no_grad(), unseen():
            parts = [dense(p).reshape(-1)[::every].to("cpu", torch.float64) for p in found]
            shapes = hashlib.blake2b(repr([tuple(p.shape) for p in found]).encode(), digest_size=8).hexdigest()
            return Weights(self._number, shapes, look(torch.cat(parts)))


def _places(numbers: list[int]) -> dict[int, tuple[int, int]]:
    """Return for each of these modules, by id, the first of those that are parts of one module with it, and how many of
    them hold it."""
    from torch.nn import Module

    first, held = {number: number for number in numbers}, dict.fromkeys(numbers, 0)
    for each in gc.get_objects():
        if issubclass(type(each), Module):
            inside = [id(part) for _, part in modules(each) if id(part) in first]
            for part in inside if id(each) in first else ():
                held[part] += part != id(each)
            if len(joined := {first[part] for part in inside}) > 1:
                least = min(joined, key=numbers.index)
                first = {number: least if known in joined else known for number, known in first.items()}
    return {number: (first[number], held[number]) for number in numbers}


def _seed() -> int:
    import torch

    return int(torch.initial_seed()) & ((1 << 63) - 1)


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """All that lies in a nest of lists and mappings."""
    if isinstance(value, Mapping) and depth < DEPTH:
        value = list(value.values())
    if isinstance(value, (list, tuple)) and depth < DEPTH:
        for each in value:
            yield from _leaves(each, depth + 1)
    else:
        yield value


def _bytes(leaf: Any) -> bytes:
    """A sample of a batch's elements; of a device's tensor, for which it would be waited, the shape alone."""
    if not hasattr(leaf, "dtype"):
        return repr(leaf).encode() if isinstance(leaf, (int, float, str, bytes, bool)) else b""
    said = f"{tuple(leaf.shape)}{leaf.dtype}".encode()
    if hasattr(leaf, "layout"):
        if leaf.device.type != "cpu" or is_wrapper(leaf):
            return said
        found = sampled(leaf)
        with contextlib.suppress(TypeError, RuntimeError, BufferError):  # a dtype that NumPy does not have
            return said + bytes(np.from_dlpack(found).data)
        return said + bytes(raw(found))
    return said + bytes(leaf.reshape(-1)[:: max(1, leaf.size // 64)].tobytes())
