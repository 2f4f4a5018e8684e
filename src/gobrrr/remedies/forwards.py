"""How is a module's forward replaced so that a copy of the module computes with its own weights?

A closure over the module's own method is copied as it is: of a deepcopy that keeps the best weights the live ones would
run. A method is bound to the copy anew, and pickled by its name: what is loaded has the class's forward.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

Body = Callable[..., Any]
"""Called with the module, the forward beneath, and what the module was given."""


def replaced(module: Any, body: Body) -> MethodType:
    """`body` as a forward of `module`, to be set in its place."""
    own = vars(module).get("forward")
    ours = isinstance(own, MethodType) and own.__self__ is module
    beneath = own.__func__ if ours else own if own is not None else type(module).forward
    bound = ours or own is None

    @functools.wraps(beneath)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return body(self, MethodType(beneath, self) if bound else beneath, *args, **kwargs)

    forward.__name__ = "forward"  # by which it is pickled
    return MethodType(forward, module)
