"""A forward that keeps no graph, and makes one after all where a backward comes through its outputs."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from gobrrr.data.sample_cache.names import named
from gobrrr.remedies.mechanism.changed import counts

PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
"""Types that may stand beside tensors in a call: of anything else nobody knows which tensors it holds."""


ASKING = frozenset({"is_grad_enabled", "requires_grad", "grad_fn", "is_leaf", "is_inference"})
"""Names by which code asks whether a graph is made."""
FAST = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
MOST_READ = 200
"""Functions that are read of one class."""
_ASKS: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


class Insides(NamedTuple):
    """Parts that a module is made of now."""

    modules: list[Any]
    tensors: list[Any]
    """Parameters and buffers, each once."""
    asking: list[Any]
    """Tensors of these that require gradients."""

    @property
    def are_quiet(self) -> bool:
        """All are in eval() mode, and nobody has hooked himself in, who would miss the graph or be called twice."""
        trains = any(module.training for module in self.modules)
        return not trains and not are_hooked(self.modules) and not any(t._backward_hooks for t in self.asking)

    @property
    def ask_for_a_graph(self) -> bool:
        """The code of a forward, or what it names, asks whether there is one, and may compute something else without.
        torch's transformer layers do so too."""
        return may_go_fast(self.modules) or any(_asks_for_a_graph(type(module)) for module in self.modules)

    def keep_a_graph(self) -> bool:
        """Whether a module has put away a tensor that a backward may go through."""
        kept = (value for module in self.modules for value in vars(module).values())
        return any(isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None for leaf in tree_leaves(list(kept)))


def _asks_for_a_graph(kind: type) -> bool:
    if kind not in _ASKS:
        _ASKS[kind] = any(not ASKING.isdisjoint(named(each.__code__)) for each in _run_by(kind))
    return _ASKS[kind]


def _run_by(kind: type) -> Iterator[FunctionType]:
    """The forward of a class, and what it names: methods, properties, functions of its module, what one wraps. torch's
    are left out, and gobrrr's own."""
    waiting, met = [inspect.getattr_static(kind, "forward", None)], set[FunctionType]()
    while waiting and len(met) < MOST_READ:
        found = waiting.pop()
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        module = str(getattr(found, "__module__", None)).partition(".")[0]
        if not isinstance(found, FunctionType) or found in met or module in ("torch", "gobrrr"):
            continue
        met.add(found)
        yield found
        waiting.append(getattr(found, "__wrapped__", None))
        for name in named(found.__code__):
            waiting += [inspect.getattr_static(kind, name, None), found.__globals__.get(name)]


def are_hooked(modules: Iterable[Any]) -> bool:
    """Whether somebody listens at one of them, or at all that there are. gobrrr itself puts no hooks on modules."""
    everywhere: Callable[[], bool] = torch.nn.modules.module._has_any_global_hook
    return everywhere() or any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks for m in modules
    )


def may_go_fast(modules: Iterable[Any]) -> bool:
    """Whether one of torch's transformer layers may leave the way that they go with a graph. Each does by its own
    tensors: one of which some ask goes the usual way, as it does in `AS_WITH_A_GRAPH`, one of which none asks does
    not."""
    return any(isinstance(m, FAST) and not any(p.requires_grad for p in m.parameters()) for m in modules)


def modules_of(module: Any) -> list[Any]:
    """Return the modules in a module, found by hand: module.modules() takes several times as long, and each forward
    asks."""
    modules = [module]
    for each in modules:
        if each._modules:
            modules += [m for m in each._modules.values() if m is not None]
    return modules


def insides(module: Any) -> Insides:
    """All of it."""
    modules = modules_of(module)
    held = {id(t): t for m in modules for kind in (m._parameters, m._buffers) if kind for t in kind.values()}
    tensors = [tensor for tensor in held.values() if tensor is not None]
    return Insides(modules, tensors, [tensor for tensor in tensors if tensor.requires_grad])


class Way(NamedTuple):
    """How a forward is called: which parameters ask for gradients, how the inputs are nested, and all but tensors."""

    asking: tuple[int, ...]
    spec: TreeSpec
    plain: tuple[str | None, ...]


class Kind(NamedTuple):
    """Calls of one kind: how the outputs are nested, which could have a gradient."""

    spec: TreeSpec
    floats: tuple[bool, ...]


class Call:
    """One call of a forward with what it holds."""

    def __init__(self, forward: Callable[..., Any], args: Any, kwargs: Any, inside: Insides) -> None:
        self._forward, self._args, self._kwargs = forward, args, kwargs
        self.inside = inside
        self.given, spec = tree_flatten((args, kwargs))
        plain = tuple(repr(each) if type(each) in PLAIN else None for each in self.given)  # 1 is no True here
        self.way = Way(tuple(map(id, inside.asking)), spec, plain)
        self.leaves: list[Any] = []
        self.kind: Kind | None = None
        self.came: Callable[[], None] = lambda: None
        """Told when a backward comes through it."""

    def may_be_repeated(self) -> bool:
        """Whether it is known what goes in, none of it asks for a gradient, and all says when it is written to."""
        return all(map(counts, self.inside.tensors)) and all(
            type(g) in PLAIN or (type(g) is torch.Tensor and not g.requires_grad and counts(g)) for g in self.given
        )

    def knows_outputs(self) -> bool:
        """Whether no output holds tensors that cannot be seen, or is one that does things of its own."""
        return all(type(leaf) in (torch.Tensor, *PLAIN) for leaf in self.leaves)

    def run(self) -> list[Any]:
        """The outputs that could have a gradient, each once."""
        self.leaves, spec = tree_flatten(self._forward(*self._args, **self._kwargs))
        floats = tuple(_is_float(leaf) for leaf in self.leaves)
        self.kind = Kind(spec, floats)
        return list({id(leaf): leaf for leaf in self.leaves if _is_float(leaf)}.values())

    def run_again(self) -> list[Any]:
        """Run the call again as it was: in eval() mode, without autocast."""
        modes = [module.training for module in self.inside.modules]
        for module in self.inside.modules:
            module.training = False
        try:
            with torch.enable_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return self.run()
        finally:
            for module, mode in zip(self.inside.modules, modes, strict=True):
                module.training = mode

    def result(self, instead: dict[int, Any] | None = None) -> Any:
        """Return what it gave, with others in the place of some outputs."""
        assert self.kind is not None
        return tree_unflatten([(instead or {}).get(id(leaf), leaf) for leaf in self.leaves], self.kind.spec)

    def versions(self) -> list[int]:
        """Return the versions of all that it is computed from: they say whether it was written to."""
        given = [each for each in self.given if isinstance(each, torch.Tensor)]
        return [each._version for each in (*self.inside.tensors, *given)]

    def state(self) -> list[Any]:
        """Return the values that another call would change, if it changed anything."""
        on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        drawn = [torch.get_rng_state(), *on_devices]
        return [*self.versions(), *(bytes(each.numpy()) for each in drawn)]


def without_graph(call: Call) -> Any:
    """Return its result, computed under no_grad()."""
    found: dict[int, Any] = {}
    tied = _Later.apply(call, found, *call.inside.asking)  # type: ignore[no-untyped-call]
    return call.result(dict(zip(found, tied, strict=True)))


class _SlowPath:
    """torch's transformer layers compute in another way where no gradient is asked for, with zeros at padding. While
    any thread is in here they do not; the switch is the process's, and the last to leave puts it back."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.backends.mha.set_fastpath_enabled(self._before)


AS_WITH_A_GRAPH = _SlowPath()


class _Later(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, found: dict[int, Any], *asking: Any) -> Any:
        ctx.call, ctx.versions = call, call.versions()
        ctx.set_materialize_grads(False)
        with AS_WITH_A_GRAPH:
            found.update((id(output), output) for output in call.run())
        return tuple(output.detach() for output in found.values())  # no views, which could not be written to

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        call = ctx.call
        if ctx.versions != call.versions():  # as any graph says it
            raise RuntimeError("what a forward was computed from has been modified by an inplace operation")
        call.came()
        pairs = zip(call.run_again(), gradients, strict=True)
        reached = [(output, given) for output, given in pairs if given is not None and output.requires_grad]
        return None, None, *_gradients(reached, call.inside.asking)


def _gradients(reached: list[Any], asking: list[Any]) -> list[Any]:
    """Return the gradients of the tensors that still ask for one, None for the others."""
    still = [each for each in asking if each.requires_grad]
    if not reached or not still:
        return [None] * len(asking)
    found = torch.autograd.grad(
        [output for output, _ in reached], still, [given for _, given in reached],
        create_graph=torch.is_grad_enabled(), allow_unused=True,
    )  # fmt: skip
    of = dict(zip(map(id, still), found, strict=True))
    return [of.get(id(each)) for each in asking]


def leaves_of(outputs: Iterable[Any]) -> set[int]:
    """Ids of the tensors that a backward from these would give gradients."""
    nodes: set[Any] = set()
    todo = [output.grad_fn for output in outputs]
    while todo:
        node = todo.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            todo += [before for before, _ in node.next_functions]
    return {id(node.variable) for node in nodes if hasattr(node, "variable")}


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
