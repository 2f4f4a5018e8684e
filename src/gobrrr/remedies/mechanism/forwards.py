"""How is a module's forward replaced so that a copy of the module computes with its own weights?

A closure over the module's own method is copied as it is: of a deepcopy that keeps the best weights the live ones would
run. A method is bound to the copy anew, and pickled by its name: what is loaded has the class's forward.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

OURS = "_gobrrr_over"
"""Attribute of our methods: the program's own function beneath, of its instance; None where that is the class's."""
Body = Callable[..., Any]
"""Called with the module, the forward beneath, and what the module was given."""


def replaced(module: Any, body: Body) -> Callable[..., Any]:
    """`body` as a forward of `module`, to be set in its place."""
    own = vars(module).get("forward")
    if isinstance(own, MethodType) and own.__self__ is module:
        return _method(module, body, own.__func__)
    of_class = inspect.getattr_static(type(module), "forward", None)
    if own is None and isinstance(of_class, FunctionType):
        return _method(module, body, of_class)
    return _Over(module, body, module.forward)  # TorchScript's is no function


def _method(module: Any, body: Body, beneath: Callable[..., Any]) -> MethodType:
    @functools.wraps(beneath)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return body(self, functools.partial(beneath, self), *args, **kwargs)  # dynamo makes no methods

    forward.__name__ = "forward"  # by which it is pickled
    own = vars(module).get("forward")
    setattr(forward, OURS, getattr(own.__func__, OURS, own.__func__) if isinstance(own, MethodType) else None)
    return MethodType(forward, module)


def plainly_saved(save: Callable[..., Any]) -> Callable[..., Any]:
    """torch.save, in whose files modules have what the program gave them: a forward of ours in one would be read as a
    call of getattr, which torch.load refuses by default (weights_only), hours after."""

    @functools.wraps(save)
    def saved(*args: Any, **kwargs: Any) -> Any:
        from torch.nn import Module

        state: Callable[[Any], Any] = Module.__getstate__
        if hasattr(state, OURS):  # a file in a file, or another thread's
            return save(*args, **kwargs)

        def plain(module: Any) -> Any:
            return _plain_state(module, state(module))

        setattr(plain, OURS, None)
        Module.__getstate__ = plain  # type: ignore[method-assign]
        try:
            return save(*args, **kwargs)
        finally:
            Module.__getstate__ = state  # type: ignore[method-assign]

    return saved


def is_ours(method: Any) -> bool:
    """Whether it was made here."""
    return isinstance(method, _Over) or hasattr(getattr(method, "__func__", None), OURS)


def _plain_state(module: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return a module's attributes, without those put over its methods."""
    found = dict(state)
    for name, method in state.items():
        if isinstance(method, _Over):
            found[name] = method.beneath
        elif isinstance(method, MethodType) and method.__self__ is module:
            of_class = inspect.getattr_static(type(module), name, None)
            own = getattr(method.__func__, OURS, method.__func__) or of_class
            found[name] = MethodType(own, module)
            if own is of_class:  # of a copy, too, whose method was bound anew by its name
                del found[name]
    return found


class _Over:
    """Over what the program has put there itself, which a copy has again."""

    def __init__(self, module: Any, body: Body, own: Callable[..., Any]) -> None:
        self._module, self._body, self._own = module, body, own
        self.__wrapped__ = own  # libraries read a forward's signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._body(self._module, self._own, *args, **kwargs)

    @property
    def beneath(self) -> Callable[..., Any]:
        """Return the method that the program has put there."""
        return self._own.beneath if isinstance(self._own, _Over) else self._own

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, ((self._own,), 0)
