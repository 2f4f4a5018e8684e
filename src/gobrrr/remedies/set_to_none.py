"""zero_grad() drops gradients instead of writing zeros over them."""

from __future__ import annotations

import functools
import sys
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.groups import parameters_of
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class SetToNone(Remedy):
    """optimizer.zero_grad(set_to_none=True) whatever the program asks for. A parameter that has no gradient when an
    optimizer steps gets the zeros that it would have had: momentum and weight decay move it, where None would not."""

    name = "set_to_none"
    title = "drops gradients instead of filling them with zeros"
    safety = "exact"
    place = "optimizer"
    saves_memory = True
    serves = "training"
    codes = ("BRR207",)
    by_hand = "optimizer.zero_grad(set_to_none=True)"
    unseen = (
        "who keeps the bare storage or the address (data_ptr) of a gradient reads memory there that is no gradient's "
        "any more; a tensor, view or array that is kept is seen, and those gradients keep their zeros"
    )

    def apply(self, seams: Seams) -> None:
        from torch.nn import Module
        from torch.optim import Optimizer

        known = _Dropped()
        for kind in (Optimizer, Module):
            self._replace(kind, seams, known)
        seams.at_step(known.fill)
        seams.undo(known.stop)

    def _replace(self, kind: Any, seams: Seams, known: _Dropped) -> None:
        plain = kind.zero_grad

        @functools.wraps(plain)
        def zero_grad(holder: Any, set_to_none: bool = True) -> None:
            if set_to_none or not known.note(holder):
                known.forget(holder)
                plain(holder, set_to_none=set_to_none)
                return
            seams.applied(self.name, type(holder).__name__)
            plain(holder, set_to_none=True)

        seams.replace(kind, "zero_grad", zero_grad)


class _Dropped:
    """Parameters whose gradients were dropped where the program wanted zeros."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}
        self._over = False

    def note(self, holder: Any) -> bool:
        """Those of an optimizer or a module that have a gradient now. Not where that is sparse, of which an empty one
        still counts as a step, lies in a larger buffer, or is held by somebody else, who would read it after zeros were
        written to it; nor inside of an optimizer's step, whose closure is called after what `fill` does."""
        found = [p for p in parameters_of(holder) if p.grad is not None]
        if self._over or any(p.grad.is_sparse or _is_part(p.grad) or _is_held(p) for p in found):
            return False
        if _is_inside_a_step():
            return False
        self._known.update((id(p), weakref.ref(p)) for p in found)
        return True

    def forget(self, holder: Any) -> None:
        """The program wants them to be what they are."""
        for parameter in parameters_of(holder) if self._known else ():
            self._known.pop(id(parameter), None)

    def fill(self) -> None:
        """Before an update."""
        import torch

        known, self._known = self._known, {}
        for parameter in (ref() for ref in known.values()):
            if parameter is not None and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def stop(self) -> None:
        """The remedy goes: what was dropped is there again, and nothing more is."""
        self._over = True
        self.fill()


def _is_part(gradient: Any) -> bool:
    """Of a larger tensor: backward adds to it in place."""
    return bool(gradient._is_view()) or gradient.untyped_storage().nbytes() > gradient.nbytes


def _is_held(parameter: Any) -> bool:
    """Whether a name, a list, a view or an array keeps its gradient, or memory of it, beside the parameter."""
    return _holders(parameter) != _alone()


def _holders(parameter: Any) -> tuple[int, int, int]:
    """Of its gradient: how many refer to the Python object, to torch's tensor, and to its memory."""
    import torch

    gradient = parameter.grad
    memory = torch._C._storage_Use_Count(gradient.untyped_storage()._cdata)
    return sys.getrefcount(gradient), gradient._use_count(), memory


@functools.cache
def _alone() -> tuple[int, int, int]:
    """The same where only the parameter has it: interpreters and builds of torch count differently."""
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


REMEDY = SetToNone()
