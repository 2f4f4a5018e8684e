"""Holders of memory when a program dies of it: tensors and arrays by role, activations by layer and op.

Read once, when the program is over. Roles are claimed in this order, each storage once: parameters, buffers,
gradients, optimizer state, activations (kept by autograd's graphs), results in a forward that failed, variables of the
lines that failed, and other tensors and arrays by who holds them.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from gobrrr.capture.facts.owners import owner_of
from gobrrr.capture.facts.tensors import is_plain
from gobrrr.capture.hooks import module_parts
from gobrrr.capture.source.user_code import is_method
from gobrrr.capture.windows.saved_for_backward import (
    ACCUMULATE,
    NotShown,
    are_of_steps,
    kept_by,
    nodes_behind,
    op_of,
)

MAX_NODES = 500_000
"""Most nodes of all graphs that are walked: some microseconds each."""
MAX_NS = 5_000_000_000
"""Longest time in ns for the look (proposed: nobody waits for a program that has died)."""
STATEFUL = ("momentum", "amsgrad", "centered")
"""Options for each of which an optimizer holds another tensor per parameter (torch.optim)."""
FEWEST_TERMS = 6
"""Terms from which a sum of losses is one over steps, not of one step's parts (proposed)."""
MAX_ITEMS = 12
"""Groups that are kept of each role, the largest."""
NUMBER_BYTES, FEWEST_NUMBERS = 32, 1 << 19
"""Bytes of a float in a list, with its place there (24 and 8, CPython), and numbers that are told from (16 MiB)."""
NOBODYS = ("other tensors", "arrays")
"""Roles of what neither a model nor an optimizer nor a graph owns."""
MOST_LOOKED_AT = 20_000
"""Objects that are looked at for who holds a group (proposed: 10 ms)."""
FIRST = 8
"""Items of a container that are looked at for what it holds, and its last."""
CONTAINERS = (list, tuple, dict, deque)
AT_ONCE = 10_000
"""Objects whose contents are asked for in one call; addresses of a group that are kept."""
_NUMBER = re.compile(r"\d+")
_PARAMETER_NODES = ("T", "Transpose", "ToCopy", "View", "Permute", "Expand", "Unsqueeze", "Reshape")
"""Nodes between an op and its parameter: a weight that is turned, cast or viewed."""


class Group(NamedTuple):
    """Equal tensors of one role: who they are of (a layer, a container), the op that kept them, shape and dtype."""

    name: str
    op: str
    shape: tuple[int, ...]
    dtype: str
    shown: float = 1.0
    """Share of their bytes that the views which hold them show."""


class Alive:
    """Bytes by device, role and group. `frames`: those of the failed lines, the innermost first; `roots`: tensors whose
    backward pass failed."""

    def __init__(self, frames: list[FrameType], is_user: Callable[[str], bool], roots: Sequence[Any] = ()) -> None:
        self._frames, self._is_user, self._roots = frames, is_user, roots
        self._claimed: set[tuple[str, int]] = set()
        self._names: dict[int, str] = {}  # of parameters, by id
        self._until = time.perf_counter_ns() + MAX_NS
        self.sizes: dict[str, Counter[tuple[str, Group]]] = {}  # by device
        self.counts: dict[str, Counter[tuple[str, Group]]] = {}
        self._places: dict[tuple[str, str, Group], set[int]] = {}  # addresses of what nobody owns
        self._examples: dict[Group, Any] = {}  # one tensor of each group
        self.in_backward: tuple[str, str] | None = None
        """(layer, op) that the backward pass had come to."""
        self.optimizers: list[str] = []
        self.history: int | None = None
        """Pairs of vectors that LBFGS keeps."""
        self.batch_norm = False
        self.options: list[str] = []
        """Options of the first one that make it hold more state."""
        self.repeated = 1
        """Optimizers over parameters of the same shapes, where several are alive."""
        self.repeated_in = ""
        """Holder of the first of these."""
        self.summed: list[tuple[str, int]] = []
        """(variable, terms) of sums whose terms keep their graphs."""
        self.masks: list[tuple[str, list[int], float]] = []
        """(name, shape, share that is true) of masks in the failed lines."""
        self.carried = ""
        """Attribute of a module that brings the graph of the steps before: a running mean with its graph."""
        self.gradient_graphs = False
        """Gradients have a graph themselves (create_graph=True): they and their parameters refer to each other."""
        self.notes: list[str] = []

    def look(self) -> None:
        """Claim everything that is there."""
        import torch

        tensors, modules, optimizers = [], [], []
        numbers: list[Any] = []  # lists of them
        for each in gc.get_objects():
            kind = type(each)
            if kind is list or kind is tuple:
                if each and type(each[0]) is float and type(each[-1]) is float and each[0] is not each[-1]:
                    numbers.append(each)
            elif issubclass(kind, torch.Tensor):
                tensors.append(each)
            elif issubclass(kind, torch.nn.Module):
                modules.append(each)
            elif issubclass(kind, torch.optim.Optimizer):
                optimizers.append(each)
        self.batch_norm = any("BatchNorm" in type(module).__name__ for module in modules)
        self.optimizers = [type(optimizer).__name__ for optimizer in optimizers]
        first: dict[str, Any] = next(iter(getattr(optimizers[0], "param_groups", ())), {}) if optimizers else {}
        self.options = [name for name in STATEFUL if first.get(name)]
        self.history = first.get("history_size")
        (alike, self.repeated), *_ = Counter(map(_of_shapes, optimizers)).most_common(1) or [((), 1)]
        if self.repeated > 1:
            first_of_all = next(each for each in optimizers if _of_shapes(each) == alike)
            self.repeated_in = owner_of(first_of_all, (optimizers, *self._frames), self._until)
        parameters = self._parameters(modules, optimizers)
        for param in parameters:
            grad = param.grad if param.is_leaf else None
            self._claim("gradients", grad, self._names[id(param)])
            self.gradient_graphs |= grad is not None and grad.grad_fn is not None
        for optimizer in optimizers:
            for param, state in list(getattr(optimizer, "state", {}).items()):
                name = self._names.get(id(param), type(optimizer).__name__)
                for value in _flat(state):
                    self._claim("optimizer state", value, name)
        self.carried = self._state(modules)
        self._activations(tensors)
        self._sums()
        self._locals()
        self._rest(tensors)
        self._numbers(numbers)

    def _numbers(self, lists: list[Any]) -> None:
        """Numbers that are Python objects, in lists and tuples: each takes eight times its four bytes."""
        total = sum(map(len, lists))
        if total >= FEWEST_NUMBERS:
            largest = max(lists, key=len)
            group = Group(owner_of(largest, (lists,), self._until), "", (total,), "float")
            self.sizes.setdefault("cpu", Counter())["Python numbers", group] += NUMBER_BYTES * total
            self.counts.setdefault("cpu", Counter())["Python numbers", group] += 1

    def _parameters(self, modules: list[Any], optimizers: list[Any]) -> list[Any]:
        """Name all parameters, of the outermost modules first, and claim them."""
        inner = {id(child) for module in modules for _, child in module_parts.items(module, "_modules")}
        found: dict[int, Any] = {}
        for module in sorted(modules, key=lambda module: id(module) in inner):
            outermost = id(module) not in inner
            named = module_parts.parameters(module) if outermost else module_parts.items(module, "_parameters")
            for name, param in named:
                if param is not None and id(param) not in found:
                    found[id(param)], self._names[id(param)] = param, name
            for name, buffer in module_parts.buffers(module) if outermost else ():
                self._claim("buffers", buffer, name)
        for optimizer in optimizers:
            for param in (p for group in getattr(optimizer, "param_groups", ()) for p in group.get("params", ())):
                if found.setdefault(id(param), param) is param:
                    self._names.setdefault(id(param), type(optimizer).__name__)
        for number, param in found.items():
            self._claim("parameters" if param.requires_grad else "frozen parameters", param, self._names[number])
        return list(found.values())

    def _state(self, modules: list[Any]) -> str:
        """Return the tensor that a module holds and that parameters made in the steps before; empty where none is."""
        import torch

        for module in modules:
            if time.perf_counter_ns() > self._until:
                break
            for name, value in [*vars(module).items(), *module_parts.items(module, "_buffers")]:
                graph = value.grad_fn if issubclass(type(value), torch.Tensor) and is_plain(value) else None
                if graph is not None and made_by_steps([graph], self._names):
                    return f"{type(module).__name__}.{name}"
        return ""

    def _claim(self, role: str, tensor: Any, name: str, op: str = "") -> bool:
        """Count a tensor's storage for a role unless it is counted already."""
        import torch

        if type(tensor).__module__ == "torch.distributed.tensor":  # what this rank holds of it
            tensor = tensor._local_tensor
        try:
            if not issubclass(type(tensor), torch.Tensor) or not is_plain(tensor) or tensor.device.type == "meta":
                return False
            storage = tensor.untyped_storage()
            size, device, address = storage.nbytes(), str(tensor.device), storage.data_ptr()
        except (RuntimeError, ValueError, NotImplementedError):  # a fake or a lazy tensor has no memory
            return False
        if not size or (device, address) in self._claimed:
            return False
        self._claimed.add((device, address))
        dtype = str(tensor.dtype).removeprefix("torch.")
        self._count(device, role, Group(family(name), op, tuple(tensor.shape), dtype), size, address)
        return True

    def _count(self, device: str, role: str, group: Group, size: int, address: int) -> None:
        if role in NOBODYS:
            places = self._places.setdefault((device, role, group), set())
            if len(places) < AT_ONCE:
                places.add(address)
        self.sizes.setdefault(device, Counter())[role, group] += size
        self.counts.setdefault(device, Counter())[role, group] += 1

    # activations

    def _activations(self, tensors: Iterable[Any]) -> None:
        layers: dict[int, str] = {}
        nodes = sorted(_nodes(tensors), key=lambda node: -node._sequence_nr())
        for node in nodes:
            layer = layers[id(node)] = self._layer(node) or layers.get(id(node), "")
            for before, _ in node.next_functions:
                if before is not None:  # what has no parameter of its own is told with what its result goes into
                    layers.setdefault(id(before), layer)
        failed = {id(node) for node in _nodes(self._roots)}
        hidden = 0
        for node in reversed(nodes):  # who keeps a storage first is its saver
            if node.name() == ACCUMULATE:
                continue
            if time.perf_counter_ns() > self._until:
                self.notes.append("the graph is too large to be read whole")
                break
            try:
                kept = list(kept_by(node))
            except NotShown:
                hidden += 1
                continue
            if kept and id(node) in failed:  # a backward pass has freed what lies behind the last of these
                self.in_backward = layers[id(node)], op_of(node)
            for tensor in kept:
                self._claim("activations", tensor, layers[id(node)], op_of(node))
        if hidden:
            self.notes.append(f"torch does not show what {hidden} nodes of the graph keep")

    def _layer(self, node: Any) -> str:
        """Return the module whose parameter an op of the graph uses; empty where it uses none."""
        todo = [(before, 2) for before, _ in node.next_functions if before is not None]
        while todo:
            before, depth = todo.pop()
            if before.name() == ACCUMULATE:
                return self._names.get(id(before.variable), "").rpartition(".")[0]
            if depth and before.name().removesuffix("Backward0") in _PARAMETER_NODES:
                todo += [(each, depth - 1) for each, _ in before.next_functions if each is not None]
        return ""

    # the rest

    def _locals(self) -> None:
        """Tensors and arrays in the variables of the lines that failed; in a layer's forward they are its results."""
        for frame in self._frames:
            if module_of(frame) is not None:
                for name, value in list(frame.f_locals.items()):
                    self._mask(name, value)
                    self._claim("forward activations", value, name)
        for _, name, value in self._variables():
            self._mask(name, value)
            self._claim("variables", value, name) or self._array("variables", value, name)

    def _mask(self, name: str, value: Any) -> None:
        """Note how much of a mask with a row for each sample is true, where the rest of each row is padding."""
        import torch

        if issubclass(type(value), torch.Tensor) and is_plain(value) and value.dtype == torch.bool and value.dim() == 2:
            with suppress(Exception):  # a device that failed may answer nothing any more
                rises = bool((value[:, 1:] & ~value[:, :-1]).any())  # padded on the right; a choice of tokens is none
                if not rises:
                    self.masks.append((name, list(value.shape), int(value.sum()) / max(1, value.numel())))

    def _variables(self) -> Iterator[tuple[CodeType, str, Any]]:
        """(code, name, value) of the variables of the user's functions, the innermost function's first."""
        for frame in self._frames:
            if self._is_user(frame.f_code.co_filename):
                every = list(frame.f_locals.items())
                yield from ((frame.f_code, name, value) for name, value in every if not name.startswith("__"))

    def _sums(self) -> None:
        """Numbers of the program that add up results with their graphs: total += loss."""
        import torch

        lines = [frame for frame in self._frames if self._is_user(frame.f_code.co_filename)]
        root = next(filter(None, map(module_of, reversed(self._frames))), None)
        trains = root is not None and module_parts.is_training(root)
        follows = trains and any("backward" in frame.f_code.co_names for frame in lines)
        for code, name, value in self._variables():
            # Where a backward pass follows, a step may sum many losses; in a module's method its caller has it.
            one_step = follows or "backward" in code.co_names or "self" in code.co_varnames
            if not one_step and issubclass(type(value), torch.Tensor) and value.dim() == 0:
                terms = _terms(value.grad_fn)
                self.summed += [(name, terms)] if terms >= FEWEST_TERMS else []

    def _rest(self, tensors: list[Any]) -> None:
        for tensor in tensors:
            if time.perf_counter_ns() > self._until:
                self.notes.append("not all tensors were looked at")
                break
            if self._claim("other tensors", tensor, ""):
                self._examples[Group("", "", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))] = tensor
        arrays = getattr(sys.modules.get("numpy"), "ndarray", None)
        objects = gc.get_objects() if arrays is not None else []
        for at in range(0, len(objects), AT_ONCE):
            if time.perf_counter_ns() > self._until:
                self.notes.append("not all arrays were looked at")
                break
            found = gc.get_referents(*objects[at : at + AT_ONCE])
            while found:  # the collector does not know tuples and dicts that hold none of its objects
                for each in found:
                    if type(each) is arrays:
                        self._array("arrays", each, "")
                plain = [each for each in found if type(each) in (tuple, dict) and not gc.is_tracked(each)]
                found = gc.get_referents(*plain) if plain else []
        self._name_holders()

    def _array(self, role: str, value: Any, name: str) -> bool:
        """Count the memory of a numpy array: its owner's, none where a file is mapped."""
        numpy = sys.modules.get("numpy")
        if numpy is None or not issubclass(type(value), numpy.ndarray):
            return False
        owner = value
        while isinstance(owner.base, numpy.ndarray):
            owner = owner.base
        key = "cpu", int(owner.__array_interface__["data"][0])
        if isinstance(owner, numpy.memmap) or not owner.nbytes or key in self._claimed or owner.base is not None:
            return False  # a mapped file; a tensor's or another library's memory
        self._claimed.add(key)
        self._count("cpu", role, Group(name, "", owner.shape, str(owner.dtype)), owner.nbytes, key[1])
        return True

    def _name_holders(self) -> None:
        """Say for groups that nobody owns which variable of the program's holds them."""
        roots = [(name, value) for _, name, value in self._variables()]
        for device, sizes in self.sizes.items():
            for (role, group), size in list(sizes.items()):
                if role in NOBODYS and size >= 1 << 20:
                    several = self.counts[device][role, group] > 1  # then a container has them, no variable
                    search = _Search(self._places[device, role, group])
                    paths = (path for name, value in roots for path in search.paths(name, value, several))
                    example = self._examples.get(group)
                    name = next(paths, "") or (
                        owner_of(example, (self._examples,), self._until) if example is not None else ""
                    )
                    if name:
                        named = group._replace(name=name, shown=search.shown)
                        sizes[role, named] += sizes.pop((role, group))
                        self.counts[device][role, named] += self.counts[device].pop((role, group))


def module_of(frame: FrameType) -> Any:
    """The torch.nn.Module whose method a frame runs."""
    from torch.nn import Module

    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return first if issubclass(type(first), Module) and is_method(code, type(first)) else None


class _Search:
    """Looks for tensors and arrays by the addresses of their memory in the program's variables. `shown`: share of the
    bytes that the first one found shows, of which a view keeps all."""

    def __init__(self, addresses: set[int]) -> None:
        self._addresses, self._left, self.shown = addresses, MOST_LOOKED_AT, 1.0

    def paths(self, name: str, value: Any, inside: bool, depth: int = 7) -> Iterator[str]:
        """Names of containers and of attributes in them; `inside`: no variable that is one itself. None of the
        program's own methods is called: they might print."""
        from torch.nn import Module

        kind = type(value)
        package = str(type.__getattribute__(kind, "__module__")).partition(".")[0]
        container = next((each for each in CONTAINERS if issubclass(kind, each)), None)
        self._left -= 1
        if self._left < 0:
            return
        if package in ("torch", "numpy") and hasattr(kind, "shape"):
            if not inside and self._is_one(value):
                yield name
        elif depth and container is not None:
            every: Any = dict.values(value) if container is dict else container.__iter__(value)
            first = list(islice(every, FIRST))
            end: Any = reversed(dict.values(value)) if container is dict else _last(container, value)
            items = [*first, *islice(end, 1)]
            yield from (name for item in items for _ in self.paths(name, item, False, depth - 1))
        elif depth and package != "builtins" and (attributes := _attributes(value)):
            modules = attributes.get("_modules") if issubclass(kind, Module) else None
            for attribute, item in [*attributes.items(), *(modules or {}).items()]:
                if modules is not None and attribute.startswith("_"):
                    continue  # parameters and hooks of a module, which are told by themselves
                yield from self.paths(f"{name}.{attribute}", item, inside, depth - 1)

    def _is_one(self, value: Any) -> bool:
        with suppress(Exception):  # whatever a subclass does
            if hasattr(value, "untyped_storage"):
                if not is_plain(value):
                    return False
                storage = value.untyped_storage()
                whole, address = storage.nbytes(), storage.data_ptr()
            else:
                while isinstance(value.base, type(value)):
                    value = value.base
                whole, address = value.nbytes, int(value.__array_interface__["data"][0])
            if address in self._addresses:
                self.shown = value.nbytes / max(1, whole)
                return True
        return False


def _last(container: Any, value: Any) -> Iterator[Any]:
    if container.__len__(value):
        yield container.__getitem__(value, -1)


def _attributes(value: Any) -> dict[str, Any]:
    """Return an object's attributes, without its own __getattribute__ or __dict__."""
    with suppress(AttributeError, TypeError):
        found = object.__getattribute__(value, "__dict__")
        return found if type(found) is dict else {}
    return {}


def made_by_steps(graphs: Iterable[Any], own: Container[int]) -> bool:
    """Say whether graphs lead to parameters (by id) through the ops of several steps."""
    nodes = nodes_behind(graphs, MAX_NODES)
    ops = [node._sequence_nr() for node in nodes if node.name() != ACCUMULATE]
    mine = any(node.name() == ACCUMULATE and id(node.variable) in own for node in nodes)
    return mine and bool(ops) and are_of_steps(min(ops), max(ops))


def _nodes(roots: Iterable[Any]) -> list[Any]:
    """Return the nodes of all graphs that lead to these tensors."""
    return nodes_behind((root.grad_fn for root in roots if root.grad_fn is not None and is_plain(root)), MAX_NODES)


def _flat(state: Any) -> Iterator[Any]:
    """The values of an optimizer's state, those in its lists (LBFGS's history) with them."""
    for value in state.values() if isinstance(state, dict) else ():
        yield from value if type(value) in (list, tuple) else (value,)


def _of_shapes(optimizer: Any) -> tuple[Any, ...]:
    groups = getattr(optimizer, "param_groups", ())
    return type(optimizer), *(tuple(param.shape) for group in groups for param in group.get("params", ()))


def _terms(node: Any) -> int:
    """Return how many results a chain of additions holds."""
    terms = 1
    while node is not None and node.name() == "AddBackward0":
        before = [each for each, _ in node.next_functions if each is not None]  # a number has no node
        terms, node = terms + len(before) - 1, next(iter(before), None)
    return terms


def family(name: str) -> str:
    """h.3.attn.weight -> h.*.attn.weight: layers that repeat are told as one."""
    return _NUMBER.sub("*", name)
