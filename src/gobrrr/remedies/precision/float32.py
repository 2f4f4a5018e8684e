"""A float64 model in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class Float32(Remedy):
    """model.float(), and float64 inputs cast: half the bytes, twice the products, another precision."""

    name = "float32"
    title = "computes in float32 what came as float64"
    safety = "semantic"
    place = "model"
    saves_memory = True
    codes = ("BRR101",)
    conflicts = ("bf16_autocast",)
    by_hand = "model.float(); x = torch.from_numpy(array).float()"

    def apply(self, seams: Seams) -> None:
        import torch
        from torch.utils._pytree import tree_map

        def single(value: Any) -> Any:
            return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float64 else value

        def computed(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(*tree_map(single, args), **tree_map(single, kwargs))

        def cast(module: Any) -> None:
            wide = [p for p in (*module.parameters(), *module.buffers()) if p.dtype == torch.float64]
            for each in wide:
                each.data = each.data.float()
                if each.grad is not None:
                    each.grad = each.grad.float()
            seams.replace(module, "forward", replaced(module, computed))
            if wide:
                seams.applied(self.name, f"{type(module).__name__}, {len(wide)} tensors")

        seams.at_model(cast)
