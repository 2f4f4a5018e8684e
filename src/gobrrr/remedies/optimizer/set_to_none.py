"""zero_grad() drops gradients instead of writing zeros over them."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.transform_guard import hide_own_code, unseen
from gobrrr.remedies.mechanism.optimizer_groups import parameters_of
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy


class SetToNone(Remedy):
    """optimizer.zero_grad(set_to_none=True) whatever the program asks for. A parameter that has no gradient when an
    optimizer steps, or somebody reads it, gets the zeros that it would have had: momentum and weight decay move it,
    where None would not. What the program itself makes None stays None."""

    name = "set_to_none"
    title = "drops gradients instead of filling them with zeros"
    safety = "exact"
    place = "optimizer"
    saves_memory = True
    serves = "training"
    by_hand = "optimizer.zero_grad(set_to_none=True)"
    unseen = (
        "who keeps the bare storage or the address (data_ptr) of a gradient reads memory there that is no gradient's "
        "any more; a tensor, view or array that is kept is seen, and those gradients keep their zeros"
    )

    def apply(self, seams: Seams) -> None:
        from torch.nn import Module
        from torch.optim import Optimizer

        known = _Dropped()
        if not known.watch(seams):
            seams.declined(self.name, "something else stands in the place of torch.Tensor.grad")
            return
        for kind in (Optimizer, Module):
            self._replace(kind, seams, known)
        seams.at_step(known.fill)
        seams.undo(known.stop)

    def _replace(self, kind: Any, seams: Seams, known: _Dropped) -> None:
        plain = kind.zero_grad

        @functools.wraps(plain)
        def zero_grad(holder: Any, set_to_none: bool = True) -> None:
            if set_to_none:
                known.forget(holder)
            if set_to_none or not known.may_drop(holder):
                plain(holder, set_to_none=set_to_none)
                return
            seams.applied(self.name, type(holder).__name__)
            known.drop(holder, plain)

        seams.replace(kind, "zero_grad", zero_grad)


class _Dropped:
    """Parameters whose gradients were dropped where the program wanted zeros. Reading and writing .grad is watched: who
    reads one gets its zeros, and who writes one, None too, means what he writes."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}
        self._over = False
        self._watch: property | None = None

    def watch(self, seams: Seams) -> bool:
        """Whether it could be begun."""
        import torch

        if "grad" in vars(torch.Tensor):
            return False
        plain = _attribute()

        def write(tensor: Any, value: Any) -> None:
            plain.__set__(tensor, value)
            self._known.pop(id(tensor), None)

        def delete(tensor: Any) -> None:
            plain.__delete__(tensor)
            self._known.pop(id(tensor), None)

        self._watch = property(self._read, write, delete, plain.__doc__)
        hide_own_code(__name__)  # compiled code calls these, and must not trace them
        seams.replace(torch.Tensor, "grad", self._watch)
        return True

    def may_drop(self, holder: Any) -> bool:
        """Not where a gradient is sparse, of which an empty one still counts as a step, lies in a larger buffer, or is
        held by somebody else, who would read it after zeros were written to it; nor inside of an optimizer's step,
        whose closure is called after what `fill` does; nor where somebody else watches .grad instead."""
        import torch

        if self._over or vars(torch.Tensor).get("grad") is not self._watch:
            return False
        found = [p for p in parameters_of(holder) if _gradient(p) is not None]
        if any(_gradient(p).is_sparse or _is_part(_gradient(p)) or _is_held(p) for p in found):
            return False
        return not _is_inside_a_step()

    def drop(self, holder: Any, zero_grad: Callable[..., None]) -> None:
        """The gradients that it has now, and those that were dropped before."""
        parameters = parameters_of(holder)
        found = [p for p in parameters if self._is_known(p) or _gradient(p) is not None]
        self.forget(holder)  # zero_grad reads them all
        zero_grad(holder, set_to_none=True)
        self._known.update((id(p), weakref.ref(p)) for p in found)

    def forget(self, holder: Any) -> None:
        """The program wants them to be what they are."""
        for parameter in parameters_of(holder) if self._known else ():
            self._known.pop(id(parameter), None)

    def fill(self) -> None:
        """Before an update."""
        for parameter in [ref() for ref in self._known.values()]:
            if parameter is not None:
                self._read(parameter)
        self._known = {}

    def stop(self) -> None:
        """The remedy goes: what was dropped is there again, and nothing more is."""
        self._over = True
        self.fill()

    def _is_known(self, tensor: Any) -> bool:
        ref = self._known.get(id(tensor))
        return ref is not None and ref() is tensor

    def _read(self, tensor: Any) -> Any:
        """Return the tensor's gradient, dense as it is where backward adds to zeros."""
        found = _gradient(tensor)
        if (found is not None and not found.is_sparse) or not self._is_known(tensor):
            return found
        import torch

        with unseen(), torch.inference_mode(False):
            filled = torch.zeros_like(tensor) if found is None else found.to_dense()
            _attribute().__set__(tensor, filled)
        return _gradient(tensor)


def _attribute() -> Any:
    """torch's own .grad, of which nobody hears."""
    import torch

    return torch._C.TensorBase.grad


def _gradient(tensor: Any) -> Any:
    return _attribute().__get__(tensor)


def _is_part(gradient: Any) -> bool:
    """Say whether it is a part of a larger tensor: backward adds to it in place."""
    return bool(gradient._is_view()) or gradient.untyped_storage().nbytes() > gradient.nbytes


def _is_held(parameter: Any) -> bool:
    """Whether a name, a list, a view or an array keeps its gradient, or memory of it, beside the parameter."""
    return _holders(parameter) != _alone()


def _holders(parameter: Any) -> tuple[int, int, int]:
    """Count the references to its gradient: to the Python object, to torch's tensor, and to its memory."""
    import torch

    gradient = _gradient(parameter)
    memory = torch._C._storage_Use_Count(gradient.untyped_storage()._cdata)
    return sys.getrefcount(gradient), gradient._use_count(), memory


@functools.cache
def _alone() -> tuple[int, int, int]:
    """Return the same counts where only the parameter has it: interpreters and builds of torch count differently."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return _holders(parameter)


def _is_inside_a_step() -> bool:
    from torch.optim import optimizer

    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == optimizer.__file__:
            return True
        frame = frame.f_back
    return False
