"""Embeddings hand on gradients for the rows that were looked up, not for all."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gobrrr.capture.dynamo import called_from_compiled
from gobrrr.remedies.groups import at_each_group, parameters_of
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class SparseGradient(Remedy):
    """embedding.sparse = True where the optimizer takes sparse gradients and computes the same with them: plain SGD and
    Adagrad without momentum and weight decay. Dense again once another one is given the same parameters. To the program
    itself, and to what clips, each gradient is dense when it reads it."""

    name = "sparse_gradient"
    title = "gives embeddings sparse gradients"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    codes = ("BRR206",)
    by_hand = "torch.nn.Embedding(..., sparse=True)"

    def apply(self, seams: Seams) -> None:
        import torch

        embeddings: list[Any] = []
        switched: list[Any] = []
        dense: set[int] = set()

        def meet(module: Any) -> None:
            embeddings.extend(m for m in module.modules() if isinstance(m, torch.nn.Embedding) and not m.sparse)

        def switch(optimizer: Any) -> None:
            held = _parameters(optimizer) - dense if _computes_the_same(optimizer) else set()
            found = [e for e in embeddings if id(e.weight) in held and not e.sparse and _may_be_sparse(e)]
            for embedding in found:
                embedding.sparse = True
                switched.append(embedding)
                seams.applied(self.name, f"{embedding.num_embeddings:,} rows")
            if found:  # a schedule may give it weight decay later
                seams.undo(optimizer.register_step_pre_hook(called_from_compiled(lambda of, *_: got(of))).remove)

        def put_back(held: set[int]) -> None:
            for embedding in [e for e in switched if id(e.weight) in held]:
                switched.remove(embedding)
                embedding.sparse = False
                if embedding.weight.grad is not None:
                    embedding.weight.grad = embedding.weight.grad.to_dense()

        def got(optimizer: Any) -> None:
            if not _computes_the_same(optimizer):
                dense.update(_parameters(optimizer))
                put_back(dense)

        register: Any = torch.Tensor.register_hook

        @functools.wraps(register)
        def hooked(tensor: Any, hook: Any) -> Any:
            if any(embedding.weight is tensor for embedding in embeddings):
                put_back({id(tensor)})  # a hook may do what cannot be done to a sparse one
                dense.add(id(tensor))
            return register(tensor, hook)

        seams.replace(torch.Tensor, "register_hook", hooked)
        _dense_for_readers(switched, seams)
        seams.undo(lambda: put_back({id(embedding.weight) for embedding in switched}))
        at_each_group(seams, got)
        seams.at_model(meet)
        seams.at_optimizer(switch)


def _dense_for_readers(switched: Sequence[Any], seams: Seams) -> None:
    """Most of what is done to a dense gradient cannot be done to a sparse one: clipping, flattening, a maximum. torch's
    own optimizers, scalers and zero_grad() take it as it is."""
    import torch

    plain: Any = torch._C.TensorBase.grad
    get = plain.__get__

    def read(tensor: Any) -> Any:
        found = get(tensor)
        if found is None or not found.is_sparse or not any(each.weight is tensor for each in switched):
            return found
        reader = sys._getframe(1).f_globals.get("__name__", "")
        if reader.startswith(("torch.", "gobrrr.")) and not reader.startswith("torch.nn.utils."):
            return found
        plain.__set__(tensor, found.to_dense())
        return get(tensor)

    ask = torch.autograd.grad

    @functools.wraps(ask)
    def asked(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        is_one = isinstance(inputs, (torch.Tensor, torch.autograd.graph.GradientEdge))
        of = (inputs,) if is_one else tuple(inputs)
        ours = [any(each.weight is tensor for each in switched) for tensor in of]
        found = ask(outputs, of, *args, **kwargs)
        return tuple(g.to_dense() if our and g is not None else g for our, g in zip(ours, found, strict=True))

    seams.replace(torch.Tensor, "grad", property(read, plain.__set__, plain.__delete__, plain.__doc__))
    seams.replace(torch.autograd, "grad", asked)


def _parameters(optimizer: Any) -> set[int]:
    return set(map(id, parameters_of(optimizer)))


def _computes_the_same(optimizer: Any) -> bool:
    """With sparse gradients as with dense ones."""
    import torch

    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adagrad):
        return False
    groups = optimizer.param_groups
    return not any(group.get("momentum") or group.get("weight_decay") or group.get("fused") for group in groups)


def _may_be_sparse(embedding: Any) -> bool:
    """torch's backward scales no sparse rows by how often they come, and a hook may want a dense gradient."""
    return not embedding.scale_grad_by_freq and not embedding.weight._backward_hooks


REMEDY = SparseGradient()
