"""A model in int8 whose scales are fixed: by the first batches that it is given itself."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


@contextlib.contextmanager
def _making() -> Iterator[None]:
    """Making layers draws numbers; and torch warns that torchao will have all this one day."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Calibrating(nn.Module):
    """The model in float for its first calls, observed; then in int8."""

    def __init__(self, model: nn.Module, calls: int, keep: Collection[str]) -> None:
        super().__init__()
        self.model, self._left, self._keep = model, calls, tuple(keep)
        self._observed = False

    def __getattr__(self, name: str) -> Any:
        """Attributes that only the model has."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own result."""
        if not self._left:
            return self.model(*args, **kwargs)
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        if not self._observed:
            mapping = get_default_qconfig_mapping("x86")
            for name in self._keep:
                mapping.set_module_name(name, None)
            with _making():
                self.model, self._observed = prepare_fx(self.model, mapping, (*args, *kwargs.values())), True
        result = self.model(*args, **kwargs)
        self._left -= 1
        if not self._left:
            with _making():
                self.model = convert_fx(self.model)  # type: ignore[arg-type]
        return result


def static_int8(model: nn.Module, calls: int = 4, keep: Collection[str] = ()) -> nn.Module:
    """Return a model that computes `calls` calls in float32 while it observes them, and all others in int8.

    Weights are int8 with a scale for each output channel, activations with one for each tensor, as observed (torch's
    x86 backend, CPU). Layers named in `keep` stay float32. Raises what torch.fx does, at the first call, where the
    model's forward cannot be traced: where it branches on values; ValueError for less than one call.
    """
    if calls < 1:
        raise ValueError(f"at least one call is observed, not {calls}")
    return _Calibrating(model, calls, keep).eval()


def simulated_int8(model: Model, keep: Collection[str] = ()) -> Model:
    """Round what linear layers and convolutions of `model` are given, and their weights, to 8 bits; in place.

    The numbers are about those of static_int8 (each input's own extremes stand for observed ones), at no gain of time:
    to see how much a layer matters. Gives the model back.
    """
    for name, part in model.named_modules():
        if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)) and name not in keep:
            most = part.weight.detach().flatten(1).abs().amax(1).clamp_min(1e-30) / 127
            scale = most.view(-1, *[1] * (part.weight.dim() - 1))
            part.weight = nn.Parameter((part.weight.detach() / scale).round() * scale, requires_grad=False)
            part.register_forward_pre_hook(_round_first)
    return model


def _round_first(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return _rounded(given[0]), *given[1:]


def _rounded(x: Tensor) -> Tensor:
    """Return x on 256 levels between its extremes, 0 among them."""
    if not x.numel():
        return x
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = max(high - low, 1e-30) / 255
    zero = round(-low / scale)
    return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
