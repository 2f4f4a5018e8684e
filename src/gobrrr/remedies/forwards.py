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

Body = Callable[..., Any]
"""Called with the module, the forward beneath, and what the module was given."""


def replaced(module: Any, body: Body, name: str = "forward") -> Callable[..., Any]:
    """`body` as a forward of `module`, or as another method that only calls it, to be set in its place."""
    own = vars(module).get(name)
    if isinstance(own, MethodType) and own.__self__ is module:
        return _method(module, body, own.__func__, name)
    of_class = inspect.getattr_static(type(module), name, None)
    if own is None and isinstance(of_class, FunctionType):
        return _method(module, body, of_class, name)
    return _Over(module, body, getattr(module, name))  # TorchScript's is no function


def _method(module: Any, body: Body, beneath: Callable[..., Any], name: str) -> MethodType:
    @functools.wraps(beneath)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return body(self, functools.partial(beneath, self), *args, **kwargs)  # dynamo makes no methods

    forward.__name__ = name  # by which it is pickled
    return MethodType(forward, module)


class _Over:
    """Over what the program has put there itself, which a copy has again."""

    def __init__(self, module: Any, body: Body, own: Callable[..., Any]) -> None:
        self._module, self._body, self._own = module, body, own
        self.__wrapped__ = own  # libraries read a forward's signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._body(self._module, self._own, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, ((self._own,), 0)
