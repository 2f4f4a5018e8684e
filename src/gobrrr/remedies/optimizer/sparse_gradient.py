"""Embeddings hand on gradients for the rows that were looked up, not for all."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from gobrrr.capture.hooks.transform_guard import called_from_compiled
from gobrrr.remedies.mechanism.optimizer_groups import asked_for, at_each_group, parameters_of
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy, is_distributed


class SparseGradient(Remedy):
    """embedding.sparse reads True where the optimizer takes sparse gradients and computes the same with them: plain SGD
    and Adagrad without momentum and weight decay. Dense again once another one is given the same parameters. To the
    program itself, and to what clips, each gradient is dense when it reads it; a copy of the module is as it was."""

    name = "sparse_gradient"
    title = "gives embeddings sparse gradients"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    unseen = "printed, an embedding says sparse=True meanwhile; its copies and what is saved do not"
    by_hand = "torch.nn.Embedding(..., sparse=True)"

    def apply(self, seams: Seams) -> None:
        import torch

        embeddings: list[Any] = []
        switched: dict[int, Any] = {}  # weights, by their id
        dense: set[int] = set()

        def meet(module: Any) -> None:
            embeddings.extend(m for m in module.modules() if isinstance(m, torch.nn.Embedding) and not m.sparse)

        def switch(optimizer: Any) -> None:
            if is_distributed():
                seams.declined(self.name, "several processes have agreed on dense gradients")
                return
            held = _parameters(optimizer) - dense if _computes_the_same(optimizer) else set()
            found = [e for e in embeddings if id(_weight(e)) in held and not e.sparse and _may_be_sparse(e)]
            for embedding in found:
                switched[id(embedding.weight)] = embedding.weight
                seams.applied(self.name, f"{embedding.num_embeddings:,} rows")
            if found:  # a schedule may give it weight decay later
                seams.undo(optimizer.register_step_pre_hook(called_from_compiled(lambda of, *_: got(of))).remove)

        def put_back(held: set[int]) -> None:
            for weight in [switched.pop(each) for each in held & switched.keys()]:
                if weight.grad is not None:
                    weight.grad = weight.grad.to_dense()

        def got(optimizer: Any) -> None:
            if not _computes_the_same(optimizer):
                dense.update(_parameters(optimizer))
                put_back(dense)

        register: Any = torch.Tensor.register_hook

        @functools.wraps(register)
        def hooked(tensor: Any, hook: Any) -> Any:
            if any(_weight(embedding) is tensor for embedding in embeddings):
                put_back({id(tensor)})  # a hook may do what cannot be done to a sparse one
                dense.add(id(tensor))
            return register(tensor, hook)

        seams.replace(torch.Tensor, "register_hook", hooked)
        seams.replace(torch.nn.Embedding, "sparse", _Sparse(switched))
        _dense_for_readers(switched, seams)
        seams.undo(lambda: put_back(set(switched)))
        at_each_group(seams, got)
        seams.at_model(meet)
        seams.at_optimizer(switch)


class _Sparse:
    """`sparse` of each embedding as its forward reads it, held by no module: a copy of one would go on with it. No
    property, of which torch.jit.script would compile the code."""

    def __init__(self, switched: Mapping[int, Any]) -> None:
        self._switched = switched

    def __get__(self, module: Any, kind: Any = None) -> Any:
        if module is None:
            return self
        return vars(module).get("sparse", False) or id(_weight(module)) in self._switched

    def __set__(self, module: Any, value: Any) -> None:
        vars(module)["sparse"] = value


def _dense_for_readers(switched: Mapping[int, Any], seams: Seams) -> None:
    """Most of what is done to a dense gradient cannot be done to a sparse one: clipping, flattening, a maximum. torch's
    own optimizers, scalers and zero_grad() take it as it is."""
    import torch

    plain: Any = torch._C.TensorBase.grad
    get = plain.__get__

    def read(tensor: Any) -> Any:
        found = get(tensor)
        if found is None or not found.is_sparse or id(tensor) not in switched:
            return found
        frame = sys._getframe(1)
        reader, moves = frame.f_globals.get("__name__", ""), frame.f_code.co_name == "_apply"  # share_memory()
        if reader.startswith(("torch.", "gobrrr.")) and not reader.startswith("torch.nn.utils.") and not moves:
            return found
        plain.__set__(tensor, found.to_dense())
        return get(tensor)

    ask = torch.autograd.grad

    @functools.wraps(ask)
    def asked(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        given, tensors = asked_for(inputs)
        ours = [id(each) in switched for each in tensors]
        found = ask(outputs, given, *args, **kwargs)
        several = found.values() if isinstance(found, dict) else found
        dense = [g.to_dense() if our and g is not None else g for our, g in zip(ours, several, strict=True)]
        return dict(zip(found, dense, strict=True)) if isinstance(found, dict) else tuple(dense)

    seams.replace(torch.Tensor, "grad", property(read, plain.__set__, plain.__delete__, plain.__doc__))
    seams.replace(torch.autograd, "grad", asked)


def _parameters(optimizer: Any) -> set[int]:
    return set(map(id, parameters_of(optimizer)))


def _weight(embedding: Any) -> Any:
    """The parameter itself: to read one that is parametrized would compute it."""
    return embedding._parameters.get("weight")


def _computes_the_same(optimizer: Any) -> bool:
    """Say whether the optimizer computes the same with sparse gradients as with dense ones."""
    import torch

    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adagrad):
        return False
    groups = optimizer.param_groups
    return not any(group.get("momentum") or group.get("weight_decay") or group.get("fused") for group in groups)


def _may_be_sparse(embedding: Any) -> bool:
    """torch's backward scales no sparse rows by how often they come, and a hook may want a dense gradient."""
    return not embedding.scale_grad_by_freq and not embedding.weight._backward_hooks
