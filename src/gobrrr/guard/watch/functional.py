"""Watch what transforms of torch.func (vmap, grad, vjp, jvp and what is made of them) give the program.

Inside of them tensors stand for others and have no numbers of their own; what the outermost one takes and gives does.
torch.compile inlines this file, and finds nothing in it: it must not be among the modules hidden from it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gobrrr.capture.hooks.lookup import Patches

Called = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Told of a transform's name, and of what calls it with which arguments; gives back what it gives."""
LABEL = "torch.func."
_ENTRIES = {"vmap_impl": "vmap", "grad_impl": "grad", "grad_and_value_impl": "grad_and_value",
            "_vjp_with_argnums": "vjp", "_jvp_with_argnums": "jvp"}  # fmt: skip


def watch(called: Called, patches: Patches) -> None:
    """From now on, until `patches` are taken out, `called` stands before these transforms, nested ones too. What vjp
    returns to be called later is not watched."""
    import torch._functorch.apis as apis
    import torch._functorch.eager_transforms as eager

    for module in (apis, eager):
        for name, label in _ENTRIES.items():
            if callable(plain := vars(module).get(name)):
                patches.replace(module, name, _told(LABEL + label, plain, called))


def _told(label: str, plain: Callable[..., Any], called: Called) -> Callable[..., Any]:
    from torch.compiler import is_compiling

    @functools.wraps(plain)
    def transform(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return plain(*args, **kwargs)
        return called(label, plain, args, kwargs)

    return transform
