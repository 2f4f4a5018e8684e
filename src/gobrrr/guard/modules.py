"""The parts of a model as the guard names them: their outputs in one call, their parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.guard.look import look
from gobrrr.guard.rows import tensors_of
from gobrrr.guard.seen import Seen


@contextlib.contextmanager
def watching(model: Any, label: str, inside: dict[str, Seen] | None) -> Iterator[None]:
    """In the first call of a plain model, every module's output too: they say where a difference begins."""
    if inside is None or hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None):
        yield
        return

    def noted(name: str) -> Callable[[Any, Any, Any], None]:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            found = tensors_of(output)
            if found and name not in inside:
                inside[name] = look(found[0])

        return hook

    handles = [m.register_forward_hook(noted(f"{label}.{plain_name(n)}")) for n, m in model.named_modules() if n]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def plain_name(name: str) -> str:
    """Without what torch.compile and DistributedDataParallel put before it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def named_parameters(label: str, model: Any) -> Iterator[tuple[str, Any]]:
    for name, parameter in model.named_parameters():
        yield f"{label}.{plain_name(name)}", parameter
