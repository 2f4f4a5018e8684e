"""Activations kept for backward: which module and line holds how many bytes, read from autograd's graph.

Read in the counting steps: the steps of the counting window (counting.py), which run without the profiler.
Hooks on saved tensors would count it too, but while they stand autograd checks no version, and torch.func refuses to
work. Nodes show what they keep: reading it runs no code of the program, checks nothing and writes nothing. Where a node
does not show it, or what it keeps is the program's own (packed by hooks, a subclass), nothing is counted and the reason
is told.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from gobrrr import words
from gobrrr.capture.facts.tensors import tensors_in, version
from gobrrr.capture.hooks.transform_guard import is_transformed, sees_every_op, unseen
from gobrrr.capture.steps.vitals import vitals
from gobrrr.capture.windows.line_log import LineLog
from gobrrr.recording.model import event_kinds

ACCUMULATE = "torch::autograd::AccumulateGrad"
MAX_NODES = 200_000
"""Most nodes of one graph that are walked; looking at one takes some microseconds."""
_NO_NUMBER = 1 << 63
"""AccumulateGrad has the largest number there is, and belongs to no moment."""
_BACKWARD = re.compile(r"Backward\d*$")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\dD)(?=[A-Z])|(?<=\d)(?=[A-CE-Z])")  # MaxPool2D, With, Indices

Saver = tuple[str, str, str, str, int]
"""(module, op, file, function, line)."""


class NotShown(Exception):
    """Raised where the contents of a graph cannot be read without changing the program, or not at all."""


class Saved:
    """Bytes that are kept for backward, by who saved them, at the moment of the counting steps at which most were.

    `owned` are storages of parameters and buffers, which are nobody's activations. `log` is a LineLog whose clock is
    autograd's sequence number: a node was made between the two events that its number lies between. `look(tensor,
    span)` sees one tensor of each storage.
    """

    def __init__(self, owned: set[int], log: LineLog, look: Callable[[Any, dict[str, Any]], object]) -> None:
        self.reason = ""
        """Why nothing is counted."""
        self.reached: set[int] = set()
        """Tensors (by id) to which the backward passes lead: those that get a gradient."""
        self._owned, self._look = owned, look
        self._places = Places(log)
        self._num_nodes = 0
        self._resident = 0.0
        self._kept: dict[int, tuple[Any, Saver, int]] = {}  # by storage: a weak reference, who saved it, its bytes
        self._most: dict[Saver, list[int]] = {}
        self._most_bytes = 0

    def result(self, result: Any) -> None:
        """A module that the program called has given this: without a backward its graph is seen here only. A recurrent
        one gives the same graph with every call, and longer: that is left to its backward."""
        if self._num_nodes < MAX_NODES:
            # Not of views of data written in place: asked for their node, torch makes them a new one, and a node's
            # number decides the order of a backward.
            self._look_at(lambda: self._walk(t for t in tensors_in(result) if not (t._is_view() and version(t))))

    def graph(self, roots: Iterable[Any]) -> None:
        """A backward pass from these tensors (or edges): count what their graph keeps."""
        self._look_at(
            lambda: self.reached.update(id(node.variable) for node in self._walk(roots) if node.name() == ACCUMULATE)
        )

    def _look_at(self, look: Callable[[], object]) -> None:
        """Unless the program's own code would take part. An odd graph is not counted, and stops nothing."""
        if self.reason:
            return
        if is_transformed() or sees_every_op():
            self.reason = "the program transforms its ops, or has a dispatch mode of its own"
            return
        try:
            with unseen():
                look()
        except NotShown as error:
            self.reason = str(error)
        except Exception as error:
            self.reason = repr(error)

    def _walk(self, roots: Iterable[Any]) -> list[Any]:
        nodes = _nodes(roots)
        self._num_nodes += len(nodes)
        for node in sorted(nodes, key=_number):  # who saves a storage first is its saver
            for tensor in kept_by(node):
                self._keep(node, tensor)
        self.settle()
        return nodes

    def settle(self) -> None:
        """Forget what is no longer kept, and remember this moment if it is the one with most."""
        self._kept = {storage: entry for storage, entry in self._kept.items() if not entry[0].expired()}
        num_bytes = sum(size for _, _, size in self._kept.values())
        if num_bytes > self._most_bytes:
            self._most_bytes, self._most = num_bytes, {}
            for _, saver, size in self._kept.values():
                entry = self._most.setdefault(saver, [0, 0])
                entry[0] += size
                entry[1] += 1

    def table(self) -> dict[Saver, tuple[int, int]]:
        """(bytes, storages) by who saved them; empty where there is a reason for not counting."""
        self.settle()
        return {} if self.reason else {saver: (size, count) for saver, (size, count) in self._most.items()}

    def _keep(self, node: Any, tensor: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = tensor.untyped_storage()
        size, number = self._in_memory(tensor, storage.nbytes()), storage._cdata
        if not size or number in self._owned or number in self._kept:
            return
        place = self._places.at(_number(node))
        saver = (place.module, op_of(node), place.file, place.function, place.line)
        self._kept[number] = (
            StorageWeakRef(storage),  # type: ignore[no-untyped-call]
            saver,
            size,
        )
        self._look(tensor, {"file": place.file, "function": place.function, "line": place.line} if place.file else {})

    def _in_memory(self, tensor: Any, size: int) -> int:
        """Bytes of a storage that are kept: none on the meta device; of one larger than all that the process has in
        memory (a file that is mapped and hardly read) the tensor's own."""
        if tensor.device.type == "meta":
            return 0
        if size > self._resident and tensor.device.type == "cpu":
            self._resident = dict(vitals()).get(event_kinds.RSS, math.inf)
            if size > self._resident:
                return min(size, int(tensor.numel()) * int(tensor.element_size()))
        return size


def _nodes(roots: Iterable[Any]) -> list[Any]:
    """All nodes of a graph. Raises NotShown where they are too many."""
    found = nodes_behind(filter(None, map(_node, roots)), MAX_NODES)
    if len(found) > MAX_NODES:
        raise NotShown(f"a graph has more than {MAX_NODES} nodes")
    return found


def nodes_behind(first: Iterable[Any], most: int) -> list[Any]:
    """Return these nodes and all that lead to them, each once; where there are more than `most`, one more than that.
    They are held until all are known: an address alone may be used again."""
    held: dict[int, Any] = {}
    todo = list(first)
    while todo and len(held) <= most:
        node = todo.pop()
        if id(node) not in held:
            held[id(node)] = node
            todo.extend(before for before, _ in node.next_functions if before is not None)
    return list(held.values())


def are_of_steps(oldest: int, newest: int) -> bool:
    """Return whether ops of these sequence numbers are of several steps: what the last of three steps or more made
    begins after half of all ops."""
    return 2 * oldest < newest


def kept_by(node: Any) -> Iterator[Any]:
    """The tensors that one node keeps. Raises NotShown."""
    if type(node).__name__ in ("CppFunction", "CopySlices"):
        raise NotShown(f"torch does not show what {node.name()} keeps")
    for name in _fields(type(node)):
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed already
            continue
        for saved in value if isinstance(value, (tuple, list)) else (value,):
            if saved is not None and (tensor := _tensor(saved)) is not None:
                yield tensor


def _tensor(saved: Any) -> Any:
    """Return the content of torch's box for one saved tensor; None where it is empty by now."""
    import torch

    if not hasattr(saved, "unpack_hook"):
        raise NotShown("this torch does not show what is kept")
    if saved.unpack_hook is not None:
        raise NotShown("the program has saved-tensor hooks of its own")
    tensor = saved.data
    if tensor is None:
        return None
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        raise NotShown(f"a {type(tensor).__name__} of layout {tensor.layout} is kept")
    return tensor


_known: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    """Names of the attributes that hold the boxes of a kind of node; torch's own kinds are remembered."""
    found = _known.get(kind)
    if found is None:
        found = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
        if kind.__module__ == "builtins":
            _known[kind] = found
    return found


def _node(root: Any) -> Any:
    """The node that made a tensor; an edge names its own."""
    import torch

    if hasattr(type(root), "node"):  # torch.autograd.graph.GradientEdge
        return root.node
    if type(root) not in (torch.Tensor, torch.nn.Parameter):
        raise NotShown(f"a {type(root).__name__} is the root of a graph")
    return root.grad_fn


def _number(node: Any) -> int:
    return int(node._sequence_nr())


def op_of(node: Any) -> str:
    """ScaledDotProductBackward0 -> scaled_dot_product."""
    return _WORDS.sub("_", _BACKWARD.sub("", node.name())).lower()


class Place(NamedTuple):
    """Where a program was: the module that ran, and the user's innermost line."""

    module: str = ""
    file: str = ""
    function: str = ""
    line: int = 0


class Places:
    """Where the program was when autograd's sequence number was so much, from a line log that has it for its clock."""

    def __init__(self, log: LineLog) -> None:
        self._log, self._read = log, 0
        self._modules: list[str] = []
        self._lines: list[tuple[str, str, int]] = []
        self._numbers: list[int] = []
        self._found: list[Place] = []

    def at(self, number: int) -> Place:
        """The place of a node with this number; nowhere for one that is older than the log, or has none."""
        self._follow()
        index = bisect_right(self._numbers, number) - 1
        return self._found[index] if index >= 0 and number < _NO_NUMBER else Place()

    def _follow(self) -> None:
        """Read the log's new events. Of several at one number the last one says where the next node was made."""
        events = self._log.events
        for at in range(self._read, len(events), 4):
            number, op, name, line = events[at : at + 4]
            self._event(op, name, line)
            if not self._numbers or self._numbers[-1] != number:
                self._numbers.append(number)
                self._found.append(Place())
            module = self._modules[-1] if self._modules else ""
            self._found[-1] = Place(module, *(self._lines[-1] if self._lines else ("", "", 0)))
        self._read = len(events)

    def _event(self, op: int, name: int, line: int) -> None:
        if op in (words.CALL, words.LINE):
            file, function, _ = self._log.codes[name]
            if op == words.LINE and self._lines:
                self._lines.pop()
            self._lines.append((file, function.rpartition(".")[2], line))
        elif op == words.RETURN and self._lines:
            self._lines.pop()
        elif op == words.MODULE:
            self._modules.append(self._log.modules[name])
        elif op == words.MODULE_END and self._modules:
            self._modules.pop()
