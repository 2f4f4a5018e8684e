"""Whether a model computes the same for a document in a packed row as for the document alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gobrrr.data.packing.collate import PackingCollate
from gobrrr.errors import GobrrrError

INPUTS = ("input_ids", "position_ids", "attention_mask")
Forward = Callable[[dict[str, Tensor]], Any]


def check_packable(
    model: nn.Module, documents: Sequence[Any] = (), collate: PackingCollate | None = None,
    forward: Forward | None = None,
) -> None:  # fmt: skip
    """An error that names the module where packing is wrong: layers that carry state from one position to the next
    (recurrent ones, convolutions over positions) or mix documents (batch normalisation).

    Names cannot tell all of them (state space models, attention that ignores its mask, positions that do not restart).
    With a few `documents` and the `collate` of the program the model is tried as well: in evaluation mode and without
    gradients each one is computed alone and in a row with the others, and both must agree within the square root of
    the dtype's precision. `forward` takes the batch and calls the model; by default it gets input_ids, position_ids
    and attention_mask, as far as it takes them.
    """
    for name, module in model.named_modules():
        why = _carries(module)
        if why:
            raise _refused(name, module, why)
    if documents:
        if collate is None:
            raise GobrrrError("documents are given without collate", "pass collate=, your program's PackingCollate")
        _tried(model, documents, collate, forward or _caller(model))


def _carries(module: nn.Module) -> str:
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "carries state from each position to the next"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "takes its mean over all documents and the padding"
    if isinstance(module, nn.modules.conv._ConvNd):
        # Patches of a picture do not overlap: kernel and stride are the same.
        if max(module.kernel_size) > 1 and (module.kernel_size != module.stride or len(module.kernel_size) == 1):
            return "is a convolution over positions"
    return ""


BUCKETS = "use BucketBatchSampler, which pads within batches of like length"
MASKS = "attention that adds its mask, as transformers' eager does, needs attn_implementation='sdpa'; else "


def _refused(name: str, module: nn.Module, why: str, hint: str = BUCKETS) -> GobrrrError:
    return GobrrrError(
        f"the model cannot be trained on packed rows: {name or 'itself'} ({type(module).__name__}) {why}", hint
    )


def _caller(model: nn.Module) -> Forward:
    takes = inspect.signature(model.forward).parameters
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

    def call(batch: dict[str, Tensor]) -> Any:
        return model(**{name: batch[name].to(device) for name in INPUTS if anything or name in takes})

    return call


def _tried(model: nn.Module, documents: Sequence[Any], collate: PackingCollate, forward: Forward) -> None:
    whole = PackingCollate(
        collate.capacity, causal=collate.causal, pad_id=collate.pad_id, first_position=collate.first_position
    )
    packed = whole([documents])
    together = _outputs(model, packed, forward)
    for number in range(len(documents)):
        alone = _outputs(model, whole([[documents[number]]]), forward)
        there = (packed["document_ids"][0] == number).nonzero().flatten()
        for name, output in alone.items():
            if name in together and not _agree(together[name][0, there], output[0, : len(there)]):
                module = model.get_submodule(name)
                why = f"computes document {number} otherwise beside others than alone"
                raise _refused(name, module, why, MASKS + BUCKETS)


def _outputs(model: nn.Module, batch: dict[str, Tensor], forward: Forward) -> dict[str, Tensor]:
    """By module, in the order of their calls: the first tensor that has a vector for each token."""
    found: dict[str, Tensor] = {}
    hooks = [module.register_forward_hook(_keeps(found, name, batch)) for name, module in model.named_modules()]
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        with torch.no_grad():
            forward(batch)
    finally:
        for module in training:
            module.training = True
        for hook in hooks:
            hook.remove()
    return found


def _keeps(found: dict[str, Tensor], name: str, batch: dict[str, Tensor]) -> Callable[..., None]:
    shape = batch["input_ids"].shape

    def keep(module: nn.Module, given: Any, output: Any) -> None:
        values = [output] if isinstance(output, Tensor) else _values(output)
        per_token = (value for value in values if isinstance(value, Tensor) and value.shape[:2] == shape)
        first = next(per_token, None)
        if first is not None and first.is_floating_point():
            found[name] = first.detach().cpu()

    return keep


def _values(output: Any) -> list[Any]:
    return list(output.values()) if hasattr(output, "values") else list(output) if isinstance(output, tuple) else []


def _agree(packed: Tensor, alone: Tensor) -> bool:
    scale = float(alone.abs().max()) if alone.numel() else 0.0
    bound = torch.finfo(alone.dtype).eps ** 0.5 * max(scale, torch.finfo(alone.dtype).tiny)
    return bool((packed - alone).abs().max() <= bound) if alone.numel() else True
