"""The counting step: what goes into the models, what is denormal, what keeps tensors."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

from gobrrr.capture.facts.program_facts import autocast
from gobrrr.capture.facts.tensors import describe, is_plain, some_of, tensors_in, version
from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import in_backward, is_transformed, unseen, variables
from gobrrr.capture.source.statements import growth_line
from gobrrr.capture.source.user_code import UserFiles, user_line
from gobrrr.capture.windows.saved_for_backward import ACCUMULATE, NotShown, are_of_steps, kept_by, nodes_behind

MAX_SAMPLED = 4096  # values read of a tensor for denormals; proposed: a sample is cheap; shares missed would settle it
MAX_TENSORS = 256  # tensors looked at for denormals; proposed: bounds the cost; measured cost per look would settle it
MAX_IDS, MAX_ROWS, MAX_TEXTS = 1 << 20, 64, 256
"""Elements and rows, at most, of an input that is held against earlier ones; and rows that are remembered."""


class Counted:
    """Counts during some steps; `module` is called for every module call of theirs.

    `number` names a module; none is held: the program may count references, or wait for a module to go. `updates`
    says how often optimizers of any of these parameters (by id) have stepped: a fused one raises no version.
    """

    def __init__(
        self,
        flushes_denormals: bool,
        number: Callable[[Any], int] = id,
        updates: Callable[[set[int]], int] = lambda parameters: 0,
    ) -> None:
        self._number, self._updates = number, updates
        self.inputs: list[dict[str, Any]] = []
        self.denormals: list[dict[str, Any]] = []
        self.roots: dict[int, dict[str, Any]] = {}
        self.switches: dict[str, Any] = {}
        self._calls_at: dict[tuple[Any, ...], int] = {}
        self._size_at: dict[tuple[Any, ...], int] = {}
        self._given: dict[tuple[int, ...], _Given] = {}
        self._before: dict[tuple[int, int], deque[Any]] = {}
        self._look_for_denormals = not flushes_denormals
        self._looked = 0
        self.error = ""

    def module(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], depth: int, frame: FrameType) -> None:
        """A module is called; of those the program calls itself (depth 0) the inputs are looked at. What a backward
        calls is no call of the program's: checkpointing runs there again what it has not kept. Autocast may begin
        inside of a forward."""
        if is_transformed() or in_backward():
            return
        try:
            if depth:
                self.switches["autocast"] = self.switches.get("autocast") or autocast()
                return
            with unseen():
                self._root(module, list(tensors_in((args, kwargs))), user_line(frame))
        except Exception as error:
            self.error = repr(error)

    def _root(self, module: Any, tensors: list[Any], span: dict[str, Any] | None) -> None:
        import torch

        number = self._number(module)
        seen = self.roots.setdefault(number, {"calls": 0, "repeated": 0, "span": span})
        seen["calls"] += 1
        self.switches = {
            "grad_enabled": torch.is_grad_enabled(),
            "anomaly": torch.is_anomaly_enabled(),
            "autocast": autocast(),
        }
        seen["grad_enabled"] = torch.is_grad_enabled()
        repeats = self._repeats(number, module, tensors)
        seen["repeated"] += repeats
        if repeats:
            seen["repeated_span"] = span
        size = sum(tensor.numel() for tensor in tensors)
        seen["repeated_size"] = seen.get("repeated_size", 0) + repeats * size
        place = (number, *(span or {}).values())
        self._calls_at[place] = self._calls_at.get(place, 0) + 1
        self._size_at[place] = self._size_at.get(place, 0) + size
        if seen.get("repeated_span") == span:
            seen["repeated_span_calls"] = self._calls_at[place]
            seen["repeated_span_size"] = self._size_at[place]
        turned = module_parts.takes_length_first(module)
        for which, tensor in enumerate(tensors[:8]):
            extends = self._extends((number, which), tensor)
            self.inputs.append(
                {
                    **describe(tensor),
                    "made": tensor.grad_fn is not None,
                    "span": span,
                    "extends": extends,
                    "turned": turned,
                }
            )
            self.denormal("input", tensor, span or {})

    def _repeats(self, number: int, module: Any, tensors: list[Any]) -> bool:
        """1 where this module got these very tensors before, unwritten since, and its weights are those of then; an
        address alone may be used again. In eval() it computes something else than in train(), or is asked for something
        else: a test on all of the data. After an update it is another model, whose results no earlier call has; one of
        other parameters is no update of it.
        """
        key = (number, int(module_parts.is_training(module)), *(mark for t in tensors for mark in (id(t), version(t))))
        given = self._given.get(key)
        if not tensors or given is None or not given.are(tensors):
            given = self._given[key] = _Given(tensors)
        weights = [parameter for _, parameter in module_parts.parameters(module)]
        return given.again((sum(map(version, weights)), self._updates(set(map(id, weights)))))

    def _extends(self, key: tuple[int, int], tensor: Any) -> bool | None:
        """Whether its rows are some of those that came in its place one token shorter, and a token more; null where
        none did, or what it holds (a mask, positions) would be so anyway."""
        import torch

        if tensor.is_floating_point() or tensor.is_complex() or not 0 < tensor.dim() <= 2:
            return None
        if not 0 < tensor.numel() <= MAX_IDS:
            return None
        rows = tensor.detach().reshape(-1, tensor.shape[-1])
        positions = torch.arange(rows.shape[1], device=rows.device)
        if len(rows) > MAX_ROWS or bool(((rows == 0) | (rows == 1)).all()) or bool((rows == positions).all()):
            return None
        known = self._before.setdefault(key, deque(maxlen=MAX_TEXTS))
        shorter = [each for each in known if len(each) == rows.shape[1] - 1 and each.dtype == rows.dtype]
        known.extend(rows.clone())
        if not shorter:
            return None
        return all(any(torch.equal(row[:-1], before) for before in shorter) for row in rows)

    def denormal(self, name: str, tensor: Any, span: dict[str, Any]) -> None:
        """Note the share of subnormal values in a strided sample of a floating tensor."""
        import torch

        if (
            not self._look_for_denormals
            or self._looked >= MAX_TENSORS
            or tensor.dtype not in (torch.float32, torch.float64)
            or tensor.device.type != "cpu"  # elsewhere they cost nothing, and looking would wait for the device
        ):
            return
        self._looked += 1
        with torch.no_grad():
            values = some_of(tensor, MAX_SAMPLED).abs()
            share = float(((values > 0) & (values < torch.finfo(tensor.dtype).tiny)).sum()) / max(1, values.numel())
        if share > 0:
            self.denormals.append({"name": name, "share": share, "span": span or None})


class _Given:
    """Tensors that a module was given, and the states of its parameters (versions, updates) in which it was."""

    def __init__(self, tensors: list[Any]) -> None:
        self._refs = [weakref.ref(tensor) for tensor in tensors]
        self._states: set[tuple[int, int]] = set()

    def are(self, tensors: list[Any]) -> bool:
        """Whether these are the very same, still alive."""
        known = self._refs
        return len(known) == len(tensors) and all(ref() is t for ref, t in zip(known, tensors, strict=True))

    def again(self, state: tuple[int, int]) -> bool:
        """Whether it was given them in this state before."""
        known = state in self._states
        self._states.add(state)
        return known and bool(self._refs)


class Held(NamedTuple):
    """A container whose last item has a tensor with a graph, else a large one: how long it is, and that tensor."""

    length: int
    last: weakref.ref[Any]
    graph: bool = True
    storage_bytes: int = 0
    """Bytes that the item's tensors hold; of views all of what they are views of."""
    own_bytes: int = 0
    """Bytes of their own elements."""
    oldest: weakref.ref[Any] | None = None
    """Tensor of the first item that has a graph."""


Name = tuple[str, str, str]
_CONTAINERS = (list, tuple, dict, set, deque)
MAX_LOOKED_AT = 2_000
"""Nodes of a graph that are asked whether they keep something."""
MAX_KEYS = 32
"""Containers of a dict that are looked at."""
LARGE = 1 << 16
"""Bytes from which an item without a graph is noted (proposed: a gigabyte in 16,000 steps)."""


def held_tensors(frame: FrameType | None, user: UserFiles) -> dict[Name, Held]:
    """(file, function, name) -> each container in the user's running frames whose last item has a graph or is large."""
    found: dict[Name, Held] = {}
    while frame is not None:
        code = frame.f_code
        if user.is_user(code.co_filename):
            for name, value in variables(frame).items():
                _holds(found, (code.co_filename, code.co_name, name), value)
                for inner, item in list(getattr(value, "__dict__", {}).items()) if name == "self" else ():
                    _holds(found, (code.co_filename, code.co_name, inner), item)
        frame = frame.f_back
    return found


def grown(frame: FrameType, user: UserFiles, before: dict[Name, Held], steps: int) -> list[dict[str, Any]]:
    """Containers that hold tensors and are longer than `before`, so many steps ago, in the shape of facts.HeldGraph.

    What they held then must live still: a list that every episode or step makes anew, or clears, keeps nothing.
    """
    found: list[dict[str, Any]] = []
    for (file, function, name), now in held_tensors(frame, user).items():
        then = before.get((file, function, name))
        if then is not None and then.last() is not None and now.length > then.length:
            found.append(_told((file, function, name), now, (now.length - then.length) / steps, frame))
    return found


def kept_graphs(frame: FrameType, user: UserFiles, steps: int) -> list[dict[str, Any]]:
    """Containers that keep graphs of several steps, though nobody looked before: those whose oldest item is from before
    the newest one's step. In the shape of facts.HeldGraph."""
    return [
        _told(key, now, now.length / steps, frame)
        for key, now in held_tensors(frame, user).items()
        if now.graph and now.length > 2 and are_of_steps(_number(now.oldest), _number(now.last))
    ]


def _number(ref: weakref.ref[Any] | None) -> int:
    """The number of the op that made a tensor, in the order of all forwards."""
    tensor = ref() if ref is not None else None
    return 0 if tensor is None or tensor.grad_fn is None else int(tensor.grad_fn._sequence_nr())


def _keeps(ref: weakref.ref[Any] | None) -> bool:
    """Whether a tensor's graph still keeps anything: a backward pass has freed what it kept."""
    tensor = ref() if ref is not None else None
    for node in nodes_behind([tensor.grad_fn], MAX_LOOKED_AT) if tensor is not None and tensor.grad_fn else ():
        with contextlib.suppress(NotShown):
            if node.name() != ACCUMULATE and any(each.numel() > 1 for each in kept_by(node)):
                return True
    return False


def _told(key: Name, now: Held, rate: float, frame: FrameType) -> dict[str, Any]:
    file, function, name = key
    at: FrameType | None = frame
    while at is not None and (at.f_code.co_filename, at.f_code.co_name) != (file, function):
        at = at.f_back
    line = (at or frame).f_lineno
    span = growth_line(file, name.partition("[")[0]) or {"file": file, "line": line, "function": function}
    return {
        "name": name, "length": now.length, "growth_per_step": rate, "span": span,
        "graph": now.graph and _keeps(now.oldest), "storage_bytes": now.storage_bytes, "own_bytes": now.own_bytes,
    }  # fmt: skip


def _holds(found: dict[Name, Held], key: Name, value: Any, *, inner: bool = False) -> None:
    if type(value) not in _CONTAINERS or not value:
        return
    items = value.values() if type(value) is dict else value
    last = next(reversed(items)) if type(value) is not set else next(iter(items))
    if type(value) is dict and type(last) in _CONTAINERS and not inner:  # history = {"loss": [], "accuracy": []}
        for at, item in islice(value.items(), MAX_KEYS):
            _holds(found, (*key[:2], f"{key[2]}[{at!r:.40}]"), item, inner=True)
    tensors = list(tensors_in(last))
    graph = next((t for t in tensors if t.grad_fn is not None), None)
    plain = [t for t in tensors if is_plain(t)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in plain}
    num_bytes, own = sum(storages.values()), sum(t.numel() * t.element_size() for t in plain)
    if graph is not None or (plain and num_bytes >= LARGE):
        kept = graph if graph is not None else plain[0]
        oldest = next((weakref.ref(t) for t in tensors_in(next(iter(items))) if t.grad_fn is not None), None)
        found[key] = Held(len(value), weakref.ref(kept), graph is not None, num_bytes, own, oldest)
