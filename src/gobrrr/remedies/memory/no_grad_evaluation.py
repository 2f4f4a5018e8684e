"""Models in eval() mode keep nothing for a backward that never comes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.capture.hooks.transform_guard import is_transformed
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.optimizer_groups import at_each_group
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy, is_distributed

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.graph_later import Call

CLEAN = 3
"""Graphs of evaluations that nobody used, from which on none is made."""

MANY = 32
"""Ways in which a module is called, from which on each call is taken to have its own."""


class NoGradEvaluation(Remedy):
    """torch.no_grad() around forwards of a module in eval() mode, once graphs of such forwards were thrown away unused.
    A backward that comes all the same computes its forward again, and the module is left alone from then on."""

    name = "no_grad_evaluation"
    title = "evaluates without building a graph"
    safety = "tolerance"  # torch chooses some kernels by what asks for a gradient
    place = "model"
    late = True
    saves_memory = True
    by_hand = "with torch.inference_mode():"

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.mechanism.graph_later import Call, insides

        program = _Program()

        def wrap(module: Any) -> None:
            seen, told = _Seen(), functools.partial(seams.applied, self.name, type(module).__name__)

            def quiet(of: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
                if of is not module or program.is_over or seen.left_alone or not _is_ordinary():
                    return forward(*args, **kwargs)
                if module.training:
                    return seen.training(forward(*args, **kwargs))
                if program.has_optimizer and not seen.has_trained:
                    return forward(*args, **kwargs)
                call = Call(forward, args, kwargs, insides(module))
                if not call.inside.are_quiet or not call.inside.asking or not call.may_be_repeated():
                    return forward(*args, **kwargs)
                return seen.evaluated(call, told)

            seams.replace(module, "forward", replaced(module, quiet))

        seams.undo(program.ends)
        at_each_group(seams, program.has)
        seams.at_model(wrap)


class _Program:
    """Where it has an optimizer, models go without a graph only once they were trained in train() mode."""

    has_optimizer = is_over = False

    def has(self, _: Any) -> None:
        self.has_optimizer = True

    def ends(self) -> None:
        self.is_over = True


class _Seen:
    """Knowledge of one module: does a backward come through its evaluations?"""

    def __init__(self) -> None:
        self.left_alone, self.has_trained, self.unused = False, False, 0
        self._ways: list[Any] = []
        self._kinds: list[Any] = []

    def training(self, outputs: Any) -> Any:
        """A forward in train() mode, whose first backward says that the module trains in it."""
        from torch.utils._pytree import tree_leaves

        if not self.has_trained:
            for tensor in (leaf for leaf in tree_leaves(outputs) if getattr(leaf, "grad_fn", None) is not None):
                tensor.register_hook(self._trains)
        return outputs

    def evaluated(self, call: Call, told: Callable[[], None]) -> Any:
        """Return the result of a forward in eval() mode."""
        from gobrrr.remedies.mechanism.graph_later import without_graph

        call.came = self._leave_alone
        if self.unused < CLEAN or call.way not in self._ways:  # another argument may have it draw or store
            return self._looked_at(call)
        try:
            result = without_graph(call)
        except Exception:  # it needs a graph in there; what else is wrong comes up again
            self.left_alone = True
            return self._looked_at(call)
        if call.kind not in self._kinds or not call.knows_outputs():
            return self._looked_at(call)
        told()
        return result

    def _looked_at(self, call: Call) -> Any:
        """Return the result, computed with a graph; note whether that is used. The module is left alone where the graph
        shows in other places than the outputs, or could not be made again."""
        from gobrrr.remedies.mechanism.graph_later import leaves_of

        before, outputs = call.state(), call.run()
        asking = {id(each) for each in call.inside.asking}
        if not any(each.grad_fn is not None for each in outputs):
            return call.result()
        ends_here = all(each.grad_fn is not None for each in outputs) and leaves_of(outputs) <= asking
        asks = call.inside.keep_a_graph() or call.inside.ask_for_a_graph
        if not ends_here or not call.knows_outputs() or asks or call.state() != before:
            self.left_alone = True
            return call.result()
        self._ways += [call.way] if call.way not in self._ways else []
        self.left_alone |= len(self._ways) >= MANY
        self._kinds += [call.kind] if call.kind not in self._kinds else []
        graph = _Graph(self)
        for each in outputs:
            each.register_hook(graph)
        return call.result()

    def _trains(self, _: Any) -> None:
        self.has_trained = True

    def _leave_alone(self) -> None:
        self.left_alone = True


class _Graph:
    """Lives as long as the graph of a forward that it is hooked into."""

    def __init__(self, seen: _Seen) -> None:
        self._seen = seen

    def __call__(self, _: Any) -> None:
        self._seen.left_alone = True

    def __del__(self) -> None:
        self._seen.unused += 1


def _is_ordinary() -> bool:
    """Whether gradients are on and nothing traces, transforms, lowers or distributes what runs."""
    import torch

    return torch.is_grad_enabled() and not (
        torch.compiler.is_compiling()
        or is_transformed()
        or any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
        or is_distributed()
    )
