"""The parts of a model as the guard names them: their outputs in one call, their parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.capture.hooks.transform_guard import UNFINISHED
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.watch.digest import look
from gobrrr.guard.watch.inputs import tensors_of


class Parts:
    """Outputs of a model's parts in its first call, unless it is compiled: they say where a difference begins. They are
    looked at where a part is called, by no hook: whoever asks whether the program listens finds none of ours."""

    def __init__(self, model: Any, label: str) -> None:
        compiled = hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None)
        parts = () if compiled else model.named_modules()
        self._names = {id(part): f"{label}.{plain_name(name)}" for name, part in parts if name}
        self.seen: dict[str, Seen] = {}

    def watched(self, part: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, and what it gives the first time is kept."""
        name = self._names.get(id(part))
        if name is None:
            return call

        def called(*args: Any, **kwargs: Any) -> Any:
            output = call(*args, **kwargs)
            found = tensors_of(output)
            if found and name not in self.seen and not hasattr(output, UNFINISHED):
                with contextlib.suppress(Exception):  # a kind of tensor that cannot be read: the program's all the same
                    self.seen[name] = look(found[0])
            return output

        return called


def plain_name(name: str) -> str:
    """Without what torch.compile and DistributedDataParallel put before it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def named_parameters(label: str, model: Any) -> Iterator[tuple[str, Any]]:
    for name, parameter in model.named_parameters():
        yield f"{label}.{plain_name(name)}", parameter
